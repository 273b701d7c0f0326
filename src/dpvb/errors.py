"""The errors that dpvb raises, where users import them from."""

from dpvb.guards.errors import *  # noqa: F403
