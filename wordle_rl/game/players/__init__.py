"""Scripted players: floors, ceilings and teachers that need no model."""
