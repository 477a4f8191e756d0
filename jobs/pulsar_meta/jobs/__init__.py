"""The work itself: plain functions over values, a store and an entry source. Nothing here draws."""
