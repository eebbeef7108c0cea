"""How the command line fails: one line on stderr. 2 says that the user can mend it, 1 that something else is wrong."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from shared.domain.errors import EyasError


class Refused(Exception):
    """A fault whose line is written already."""

    def __init__(self, line: str, code: int = 1) -> None:
        super().__init__(line)
        self.code = code


class Guarded(TyperGroup):
    """Turns every fault below it into its line and its exit code; a traceback is shown to who sets EYAS_DEBUG."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Refused as error:
            _end(str(error), error.code)
        except EyasError as error:
            _end(str(error), 2 if error.status < 500 else 1)
        except BrokenPipeError:
            sys.stderr.close()
            raise typer.Exit(1) from None
        except (typer.Exit, typer.Abort, TyperException):
            raise
        except Exception as error:
            if os.environ.get("EYAS_DEBUG"):
                raise
            _end(f"unexpected {type(error).__name__}: {error} (set EYAS_DEBUG=1 to see where)", 1)


def _end(line: str, code: int) -> None:
    typer.echo("eyas: " + " ".join(line.split()), err=True)
    raise typer.Exit(code) from None
