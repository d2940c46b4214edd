"""The command line. Each command reads its input, calls the library, prints; importing its module registers it."""

from tokenlight.cli import bench as bench
from tokenlight.cli import diagnose as diagnose
from tokenlight.cli import explain as explain
from tokenlight.cli import explain_file as explain_file
from tokenlight.cli import heads as heads
from tokenlight.cli import serve as serve
from tokenlight.cli.app import app as app
