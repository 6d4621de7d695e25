"""What it costs to ingest documents, and how well their pages are found.

`ingestion`: thousands of pages in hundreds of PDFs that are made for it: pages a second, memory (which is not to grow
with the number of documents), and the seconds that it takes to find out that nothing is left to do (at most 2).
`retrieval`: a folder of real manuals: pages a second, tables, and how often bm25 puts a page first, among the pages of
all of them, by one of its sentences with 40 % of the words dropped.
"""

from pathlib import Path

from benchmarks.command_line import benchmark_parser

_PARTS = ("ingestion", "retrieval")
_MANUALS = Path("/usr/share/doc/nut-doc/pdf")  # Debian's package nut-doc


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, print the tables."""
    parser = benchmark_parser("document_qa", __doc__, repeats=1)
    parser.add_argument("--only", choices=_PARTS, help="one part alone")
    parser.add_argument("--pages", type=int, default=5000, help="pages to ingest (default: 5000)")
    parser.add_argument(
        "--manuals", type=Path, default=_MANUALS, metavar="FOLDER", help=f"of real PDFs (default: {_MANUALS})"
    )
    options = parser.parse_args(arguments)
    if options.pages < 100:
        parser.error("--pages must be at least 100")

    # Imported only now, so that --help and wrong options need not wait for torch.
    from benchmarks.document_qa import ingestion, manuals
    from benchmarks.surroundings import closing_line, console, surroundings, write_json

    out, around, results = console(), surroundings(options.repeats), []
    if options.only in (None, "ingestion"):
        results.append(ingestion.figures(options.pages, options.repeats))
        out.print(ingestion.table(results[-1]))
    if options.only in (None, "retrieval"):
        if options.manuals.is_dir():
            results.append(manuals.figures(options.manuals))
            out.print(manuals.table(results[-1]))
        else:
            out.print(f"retrieval: left out, {options.manuals} is not there (on Debian: apt-get install nut-doc)")
    out.print(closing_line(around), highlight=False)
    if options.json:
        write_json(options.json, results, around)


if __name__ == "__main__":
    main()
