"""The version of a package that is not installed is unknown."""

import numpy as np

from engine.system.installation import package_version


def test_the_version_of_a_package_is_none_where_it_is_not_installed():
    assert package_version("numpy") == np.__version__
    assert package_version("lockstep-not-installed") is None
