"""Writes the parts of the device benchmark as JUnit XML, which CI services and editors show."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree


def write_junit(path: Path, results: list[dict[str, Any]]) -> None:
    """Write a test case for each part; its problems are its failures.

    Args:
        path: file to write.
        results: of each part `name`, `seconds` and `problems`.
    """
    failed = sum(bool(result["problems"]) for result in results)
    seconds = sum(result["seconds"] for result in results)
    counts = {"name": "benchmarks.gpu", "tests": str(len(results)), "failures": str(failed), "errors": "0"}
    counts["time"] = f"{seconds:.1f}"
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(suites, "testsuite", counts)
    for result in results:
        attributes = {"classname": "benchmarks.gpu", "name": result["name"], "time": f"{result['seconds']:.1f}"}
        case = ElementTree.SubElement(suite, "testcase", attributes)
        if result["problems"]:
            failure = ElementTree.SubElement(case, "failure", message=result["problems"][0])
            failure.text = "\n".join(result["problems"])
    ElementTree.ElementTree(suites).write(path, encoding="utf-8", xml_declaration=True)
