"""Protobuf messages: parse them (even damaged ones), edit their fields, convert them to JSON or text."""
