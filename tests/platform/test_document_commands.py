"""README and tutorial, followed command by command in a clean copy; and the follower itself, which has to notice what is broken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.document_runner import ROOT, Broken, Reader, blocks, copy, says

SECONDS = 240
UNRUN = {
    "README.md": ["make demo", "make test"],  # `make test` is this; the demo has tests of its own, and takes three minutes
    "docs/tutorial.md": ["eyas data download ml-100k --to data", "eyas data convert data/ml-100k data/films"],  # from GroupLens
}


@pytest.mark.timeout(900)
@pytest.mark.requirement("C-09")
@pytest.mark.parametrize("name", ["README.md", "docs/tutorial.md"])
def test_every_command_in_its_order_prints_what_the_document_says(name: str, tmp_path: Path) -> None:
    found = blocks((ROOT / name).read_text(), name)
    unrun = [command.text.split("#")[0].strip() for one in found if one.kind == "unrun" for command in one.commands]
    assert unrun == UNRUN[name]
    with Reader(copy(tmp_path / "eyas"), seconds=SECONDS) as reader:
        reader.follow(found)
    assert reader.ran == sum(len(one.commands) for one in found) - len(unrun) > 0


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy(tmp_path_factory.mktemp("clean") / "eyas")


@pytest.fixture
def reader(clean: Path) -> Iterator[Reader]:
    with Reader(clean, seconds=SECONDS) as found:
        yield found


GOOD = """
```json events.jsonl
{"user": 1, "item": 2}
```

```console
$ export FILE=events.jsonl
$ cat $FILE
{"user": 1, "item": 2}
$ printf 'one  2\\nthree 4\\nfive 6\\n'
one 2
...
five ...
$ echo a && > echo b
a
$ make --dry-run help
...
```

```console fails
$ cat nowhere
cat: nowhere: ...
```

```console unrun
$ make demo    # not here
...
```
""".replace(" && > ", " &&\n> ").replace("a\n$ make", "a\nb\n$ make")


def test_what_holds_is_followed_to_its_end(reader: Reader) -> None:
    reader.follow(blocks(GOOD, "good.md"))
    assert reader.ran == 6


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("$ cat $FILE", "$ catt $FILE", "good.md:8: it ended with 127: catt"),
        ("--dry-run help", "--dri-run help", "it ended with 2: make --dri-run help"),
        ("--dry-run help", "--dry-run halp", "No rule to make target"),
        ('1, "item": 2}\n$', '1, "item": 3}\n$', "good.md:8: cat \\$FILE\nprinted"),
        ("one 2\n", "one 3\n", "printed:\none  2"),
        ("...\nfive", "five", "printed:\none  2"),
        ("five ...", "six ...", "printed:\none  2"),
        ('{"user": 1, "item": 2}\n```', '{"user": 9, "item": 2}\n```', "good.md:8: cat"),
        ("json events.jsonl", "json event.jsonl", "No such file"),
        ("export FILE", "FOLDER", "good.md:8: cat"),
        ("cat nowhere\n", "cat events.jsonl\n", "it ended with 0: cat events.jsonl"),
        ("make demo ", "make demonstration ", "No rule to make target"),
        ("```console\n", "```bash\n", "neither that it is a console nor"),
        ("```console fails", "```console failing", "known are fails, stays, again, unrun"),
        ("$ export", "export", "stands before the first command"),
        ("json events.jsonl", "json ../events.jsonl", "lies outside"),
    ],
)
def test_a_broken_snippet_is_caught(right: str, wrong: str, says: str, reader: Reader, clean: Path) -> None:
    (clean / "events.jsonl").unlink(missing_ok=True)
    assert right in GOOD
    with pytest.raises(Broken, match=says):
        reader.follow(blocks(GOOD.replace(right, wrong), "good.md"))


@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        ("eyas data synth films", "eyas data synht films", "ended with 2"),
        ("--to data/films", "--tto data/films", "ended with 2"),
        ("7,999 rows", "8,000 rows", "the document says:\ndata/films/interactions"),
        ("items.parquet: 600 rows\n", "", "the document says:\ndata/films/interactions"),
    ],
)
def test_a_broken_snippet_of_the_tutorial_is_caught(right: str, wrong: str, fault: str, tmp_path: Path) -> None:
    text = (ROOT / "docs/tutorial.md").read_text()
    begin = text[: text.index("## 2.")]
    assert right in begin
    with Reader(copy(tmp_path / "eyas"), seconds=SECONDS) as reader, pytest.raises(Broken, match=fault):
        reader.follow(blocks(begin.replace(right, wrong), "docs/tutorial.md"))


def test_a_terminal_that_dies_or_never_says_it_is_caught(clean: Path) -> None:
    dies = "```console stays\n$ echo begun; sleep 0.2; exit 3\nbegun\n```\n\n```console again\n$ echo so\nnot so\n```\n"
    with Reader(clean, seconds=20) as reader, pytest.raises(Broken, match="it ended with 3"):
        reader.follow(blocks(dies, "dies.md"))
    with Reader(clean, seconds=1) as reader, pytest.raises(Broken, match="the document says:\nnever"):
        reader.follow(blocks("```console stays\n$ sleep 100\nnever\n```\n", "silent.md"))
    with Reader(clean, seconds=1) as reader, pytest.raises(Broken, match="printed at last:\nso"):
        reader.follow(blocks("```console again\n$ echo so\nnot so\n```\n", "again.md"))
    with Reader(clean, seconds=1) as reader, pytest.raises(Broken, match="no end within 1 s"):
        reader.follow(blocks("```console\n$ sleep 100\n```\n", "hangs.md"))


def test_dots_stand_for_what_they_stand_for() -> None:
    assert says(("a", "...", "z"), "a\nz\n")
    assert says(("a", "...", "z"), "a\nb\nc\nz")
    assert not says(("a", "...", "z"), "a\nz\nb\n")
    assert says(("run ... started",), "run r1 started\n")
    assert not says(("run ... started",), "run r1\nstarted\n")
    assert not says((), "anything\n")
    assert says(("A  B",), "A          B   \n")
    assert says(("...",), "")


@pytest.mark.timeout(20)
def test_a_line_that_does_not_fit_is_refused_at_once() -> None:
    shown = "...: version ... is ... hit rate ... against ... of ... users: ...% where ...% were asked (... to ...)"
    assert not says((shown,), ("version 2 is promoted: hit rate 0.9 against 0.4 of 9 users: 1% where 2% were asked " * 300))
    assert not says(("...",) * 12 + ("never",), "again\n" * 3000)
    assert says((shown + "...",), "m: version 2 is up: hit rate 0.9 against 0.4 of 9 users: 1% where 2% were asked (0 to 1), later")
