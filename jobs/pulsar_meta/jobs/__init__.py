"""The work of the commands: functions over values, a store and an entry source, without any output."""
