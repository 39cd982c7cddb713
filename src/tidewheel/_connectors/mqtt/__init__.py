"""MQTT: client, bridge, source and sink."""
