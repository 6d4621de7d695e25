"""Creates folders beside a user's files, with a `.gitignore` that keeps them out of repositories."""

from pathlib import Path


def add_gitignore(folder: Path) -> None:
    """Write a `.gitignore` that ignores everything in a folder. An existing `.gitignore` is left unchanged.

    Raises:
        OSError: the folder does not exist or is not writable.
    """
    try:
        with (folder / ".gitignore").open("x", encoding="utf-8") as file:
            file.write("*\n")
    except FileExistsError:
        pass  # written by the user or by another process


def make_gitignored_folder(folder: Path) -> None:
    """Create a folder, with its parents, that git ignores. An existing folder is left unchanged.

    Raises:
        OSError: the folder cannot be created.
    """
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        add_gitignore(folder)
