"""All targets by name."""

from tests.fuzz import calls, parsers, saved
from tests.fuzz.machine import GraphMachine, Machine
from tests.fuzz.session import replay
from tests.fuzz.targets import Target

MACHINES = [Target("life-table", replay, machine=Machine), Target("life-graph", replay, machine=GraphMachine)]
TARGETS = {target.name: target for target in [*MACHINES, *saved.TARGETS, *parsers.TARGETS, *calls.TARGETS]}
