"""Forty bugs that a change could bring, and a script that shows which test finds each: `python -m tests.planted_bugs`.

A suite that passes proves little; a suite that fails for each of these bugs protects from them. The bugs were chosen
before any test was run against them. A bug that no test of the fast tier finds needs a test.
"""

from tests.planted_bugs import wrong_endings, wrong_numbers

BUGS = (*wrong_numbers.BUGS, *wrong_endings.BUGS)
