"""What every test runs under: Qt without a screen, quick tests before slow ones, repeatable examples."""

import os

from hypothesis import settings

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

# No deadline: the first example may load the kernel. Derandomized: a failure is one for everybody.
settings.register_profile("redline", deadline=None, derandomize=True, print_blob=False)
settings.load_profile("redline")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)
