"""The conformance suite of connectors: what every source and every sink must do, as pytest classes to inherit from.

A harness tells the suite how to make the connector and how to look at the other side of it; the classes have the tests:

    class Place(SinkHarness):
        def __init__(self, folder):
            self.folder = folder

        def sink(self):
            return my_sink(self.folder)

        def contents(self):
            return my_reader(self.folder)

    class TestMySink(SinkConformance):
        @pytest.fixture
        def harness(self, tmp_path):
            return Place(tmp_path)

A test that a connector has no use for, because nothing can be stopped or nothing is secret, is skipped.
"""

from tidewheel._testing.connectors.driving import DrivenSink, DrivenSource
from tidewheel._testing.connectors.harness import SinkHarness, SourceHarness
from tidewheel._testing.connectors.sink_conformance import SinkConformance
from tidewheel._testing.connectors.source_conformance import SourceConformance

__all__ = ["DrivenSink", "DrivenSource", "SinkConformance", "SinkHarness", "SourceConformance", "SourceHarness"]
