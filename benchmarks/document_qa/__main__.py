"""Measures the ingestion of documents and the retrieval of their pages.

`ingestion`: thousands of pages in hundreds of generated PDFs: pages per second, memory (which must not grow with the
number of documents), and the seconds to find that nothing is left to do (at most 2).
`retrieval`: a folder of real manuals: pages per second, tables, and how often bm25 ranks a page first among all pages
for one of its sentences with 40 % of the words dropped.
"""

from pathlib import Path

from benchmarks.command_line import benchmark_parser, count

_PARTS = ("ingestion", "retrieval")
_MANUALS = Path("/usr/share/doc/nut-doc/pdf")  # Debian's package nut-doc


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, and print the tables."""
    parser = benchmark_parser("document_qa", __doc__, repeats=1)
    parser.add_argument("--only", choices=_PARTS, help="run this part only")
    parser.add_argument("--pages", type=count, default=5000, help="pages to ingest (default: 5000)")
    parser.add_argument(
        "--manuals", type=Path, default=_MANUALS, metavar="FOLDER", help=f"of real PDFs (default: {_MANUALS})"
    )
    options = parser.parse_args(arguments)
    if options.pages < 100:
        parser.error("--pages must be at least 100")

    # Imported here, so that --help and wrong options do not wait for torch.
    from benchmarks.document_qa import ingestion, manuals
    from benchmarks.environment import console, describe_environment, end_report

    out, environment, results = console(), describe_environment(options.repeats), []
    if options.only in (None, "ingestion"):
        results.append(ingestion.measure(options.pages, options.repeats))
        out.print(ingestion.table(results[-1]))
    if options.only in (None, "retrieval"):
        if options.manuals.is_dir():
            results.append(manuals.measure(options.manuals))
            out.print(manuals.table(results[-1]))
        else:
            out.print(f"retrieval: skipped, {options.manuals} does not exist (on Debian: apt-get install nut-doc)")
    end_report(out, environment, results, options.json)


if __name__ == "__main__":
    main()
