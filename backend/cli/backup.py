"""``barrierscope backup`` dumps the database, and ``barrierscope restore`` loads a dump into the folder of ``up``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from backend.cli.database import DatabaseUrl, RunningFolder, used_url
from backend.cli.export import complete_file
from backend.cli.instance import Instance, end_processes
from backend.cli.options import folder_of, stopped_by_signal
from backend.domain.errors import HostError
from backend.settings import load_settings

Dump = Annotated[Path, typer.Argument(metavar="FILE", help="The dump.")]
Folder = Annotated[str | None, typer.Option("--data-dir", metavar="DIR", help="Data folder of a stopped `up`.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace the data that the folder already contains.")]


def backup(file: Dump, database_url: DatabaseUrl = None, data_dir: RunningFolder = None) -> None:
    """Write a dump of all data while Barrierscope runs. Restore it with `restore`, or with pg_restore."""
    url = used_url(database_url, data_dir, load_settings())
    from backend.store.postgres.dumps import dump

    with stopped_by_signal(), complete_file(file) as written:
        dump(url, Path(written.name))
    typer.echo(f"{file}: {file.stat().st_size} bytes")


def restore(file: Dump, data_dir: Folder = None, replace: Replace = False) -> None:
    """Load a dump into the data folder of `up`, while it is stopped. The next `up` runs with its data."""
    folder = load_settings().data_dir_or_default() if data_dir is None else folder_of(data_dir)
    from backend.store.postgres.dumps import check_dump, has_tables, replace_by
    from backend.store.postgres.embedded import EmbeddedPostgres
    from backend.store.schema import migrate

    check_dump(file)
    with stopped_by_signal(), Instance(folder) as instance:
        end_processes(instance.leftovers())
        postgres = EmbeddedPostgres(folder / "postgres")
        try:
            url = postgres.start()
            if has_tables(url) and not replace:
                fix = "pass --replace to replace them, or another folder with --data-dir"
                raise HostError(f"{folder} already contains data", fix=fix)
            replace_by(url, file, migrate.upgrade)
        finally:
            postgres.stop()
    typer.echo(f"{folder} contains the data of {file}; start it with: barrierscope up --data-dir {folder}")
