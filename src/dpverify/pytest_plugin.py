"""The plugin of pytest under its earlier name, for environments that were installed before it moved."""

from dpverify.ci.pytest_plugin import *  # noqa: F403
