"""The errors and warnings of dpvb, where users import them from."""

from dpvb.guards.errors import *  # noqa: F403
