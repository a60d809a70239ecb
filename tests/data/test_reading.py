"""Every kind of file gives its texts in order; everything wrong is said with the file, the place and what to do."""

import gzip
import json
import os
import random
import sys
import warnings
import zlib
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flexmdm.data.reading import ReadReport, Source, address, fingerprint, numbered
from flexmdm.data.splitting import split_paragraphs


@pytest.fixture
def write(tmp_path):
    """Put bytes, text or objects (one JSON per line) in a file; gives its path."""

    def write(name, content):
        if isinstance(content, list):
            content = "".join(json.dumps(line) + "\n" for line in content)
        content = content.encode() if isinstance(content, str) else content
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return str(file)

    return write


def parquet(path, **columns):
    import pyarrow
    from pyarrow.parquet import write_table

    write_table(pyarrow.table(columns), path, row_group_size=2)
    return str(path)


def documents(source, report=None):
    return [text for _, text in numbered(source, report)]


def read(*paths, **settings):
    return documents(Source(paths, **settings))


def problem(*paths, error=ValueError, **settings):
    with pytest.raises(error) as caught:
        read(*paths, **settings)
    return str(caught.value)


# Plain text -----------------------------------------------------------------------------------------------------------


def test_each_line_of_a_txt_is_a_text(write):
    assert read(write("a.txt", "one\ntwo words\nthree")) == ["one", "two words", "three"]


def test_only_the_line_ending_is_stripped_and_blank_lines_are_skipped(write):
    assert read(write("a.txt", "  one \r\n\n \t\r\n\ttwo\r\r\nthree\x0bstill\u2028three\n")) == [
        "  one ",
        "\ttwo\r",
        "three\x0bstill\u2028three",
    ]


def test_a_byte_order_mark_is_no_text(write):
    assert read(write("a.txt", b"\xef\xbb\xbfone\ntwo\n")) == ["one", "two"]


def test_paragraphs_of_a_txt_lie_between_blank_lines(write):
    path = write("a.txt", "one\nstill one\n\n  \n\ntwo\r\nstill two\r\n\r\nthree")
    assert read(path, paragraphs=True) == ["one\nstill one", "two\nstill two", "three"]


@settings(max_examples=40)
@given(st.text(alphabet="ab \t\n", max_size=60))
def test_paragraphs_are_the_same_from_a_file_and_from_a_field(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("paragraphs")
    (folder / "a.txt").write_text(text + "\n\nend")
    (folder / "a.jsonl").write_text(json.dumps({"text": text + "\n\nend"}))
    expected = [*split_paragraphs(text), "end"]
    for name in ("a.txt", "a.jsonl"):
        assert read(str(folder / name), paragraphs=True) == expected


# Tables ---------------------------------------------------------------------------------------------------------------


def test_jsonl_gives_its_text_field_or_the_one_asked_for(write):
    path = write("a.jsonl", [{"text": "one", "title": "I"}, {"text": "two\n\n2", "title": "II"}])
    assert read(path) == ["one", "two\n\n2"]
    assert read(path, field="title") == ["I", "II"]
    assert read(path, paragraphs=True) == ["one", "two", "2"]


def test_csv_has_a_header_quoted_line_breaks_and_quotes(write):
    path = write("a.csv", 'id,text\r\n1,"two\r\nlines, ""quoted"""\r\n2,plain\r\n\r\n3,\r\n')
    assert read(path) == ['two\r\nlines, "quoted"', "plain", ""]
    assert read(path, field="id") == ["1", "2", "3"]


def test_the_only_column_of_a_csv_needs_no_name(write):
    assert read(write("a.csv", "SMILES\nCCO\nc1ccccc1\n")) == ["CCO", "c1ccccc1"]


def test_what_was_taken_for_the_name_of_the_only_column_is_said(write):
    def guess(content, **settings):
        report = ReadReport()
        (documents(Source((write("a.csv", content),), **settings), report))
        return report.first_guess

    assert "a.csv: the first line, 'CCO', was taken for the name of its only column" in guess("CCO\nCC\n")
    assert guess("text\nCC\n") is guess("id,text\n1,CC\n") is guess("CCO\nCC\n", field="CCO") is None


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_columns_may_be_separated_by_semicolons_or_tabs(write, delimiter):
    rows = ["id|text|note", '1|one, two|"a|b"', "2|three|"]
    path = write("a.csv", "\n".join(rows).replace("|", delimiter))
    assert read(path) == ["one, two", "three"]
    assert read(path, field="note") == [f"a{delimiter}b", ""]
    quoted = write("b.csv", '"text"|"label, or so"\n"one"|1\n'.replace("|", delimiter))
    assert read(quoted) == ["one"]
    assert "only 'Hello', ' world'" in problem(write("c.csv", f"Hello{delimiter} world\nBye\n"))


def test_a_comma_in_the_header_makes_it_the_separator(write):
    assert read(write("a.csv", "text,a;b;c\none;two,3\n")) == ["one;two"]


def test_a_csv_field_may_be_long(write):
    assert len(read(write("a.csv", "text\n" + "x" * 200_000))[0]) == 200_000


def test_parquet_gives_the_column_asked_for(tmp_path):
    path = parquet(tmp_path / "a.parquet", id=[1, 2, 3], text=["one", "zwei ü", "three\n\n3"])
    assert read(path) == ["one", "zwei ü", "three\n\n3"]
    assert read(path, paragraphs=True) == ["one", "zwei ü", "three", "3"]


def test_fasta_joins_the_lines_of_a_record(write):
    path = write("a.fasta", ">first\nACGT\nAC\n\n>second\n>third one\r\nGG\r\n")
    assert read(path) == ["ACGTAC", "", "GG"]
    assert read(write("b.fa", ">x\nMK\n")) == ["MK"]


def test_lines_of_fasta_with_a_semicolon_are_comments(write):
    path = write("a.fasta", "; made by hand\n>first\n; from a mouse\nACGT\n;\nAC\n")
    assert read(path) == ["ACGTAC"]


def test_paragraphs_of_one_record_share_its_number(write):
    path = write("a.jsonl", [{"text": "a\n\nb"}, {"text": ""}, {"text": "c"}])
    assert list(numbered(Source((path,), paragraphs=True))) == [(0, "a"), (0, "b"), (1, ""), (2, "c")]


# Where they are -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt.gz", "one\ntwo\n"),
        ("a.jsonl.gz", '{"text": "one"}\n{"text": "two"}\n'),
        ("A.CSV.GZ", "text\none\ntwo\n"),
        ("a.fa.gz", ">1\none\n>2\ntwo\n"),
    ],
)
def test_every_kind_may_be_gzipped(tmp_path, name, content):
    (tmp_path / name).write_bytes(gzip.compress(content.encode()))
    assert read(str(tmp_path / name)) == ["one", "two"]


def test_parquet_may_be_gzipped_too(tmp_path):
    plain = parquet(tmp_path / "a.parquet", text=["one", "two"])
    zipped = tmp_path / "b.parquet.gz"
    zipped.write_bytes(gzip.compress(open(plain, "rb").read()))
    assert read(str(zipped)) == ["one", "two"]


@pytest.fixture
def zstd(monkeypatch):
    """Stands for the package zstandard: the same interface, and zlib inside."""
    package = SimpleNamespace(ZstdDecompressor=_Decompressor, ZstdError=zlib.error)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    monkeypatch.setitem(sys.modules, "zstandard", package)
    return zlib.compress


class _Decompressor:
    def __init__(self, max_window_size):
        assert max_window_size == 2**31

    def decompressobj(self):
        return zlib.decompressobj()


_RANDOM = random.Random(0)
ROWS = b"".join(b'{"text": "%d %s"}\n' % (number, _RANDOM.randbytes(30).hex().encode()) for number in range(5000))


@pytest.mark.parametrize("frames", [1, 3])
def test_every_kind_may_be_compressed_by_zstd(tmp_path, zstd, frames):
    pieces = [ROWS[len(ROWS) * n // frames : len(ROWS) * (n + 1) // frames] for n in range(frames)]
    (tmp_path / "a.jsonl.zst").write_bytes(b"".join(map(zstd, pieces)))
    report = ReadReport()
    texts = documents(Source(str(tmp_path / "a.jsonl.zst")), report)
    assert texts == [json.loads(row)["text"] for row in ROWS.splitlines()]
    assert report.bytes == (tmp_path / "a.jsonl.zst").stat().st_size
    plain = parquet(tmp_path / "b.parquet", text=["one", "two"])
    (tmp_path / "c.parquet.zst").write_bytes(zstd(open(plain, "rb").read()))
    (tmp_path / "d.TXT.ZST").write_bytes(zstd(b"three\n"))
    assert read(str(tmp_path / "c.parquet.zst"), str(tmp_path / "d.TXT.ZST")) == ["one", "two", "three"]


@pytest.mark.parametrize("damage", ["truncated", "not zstd", "flipped", "followed by something else"])
def test_a_damaged_zstd_file_is_an_error(tmp_path, zstd, damage):
    whole = zstd(ROWS)
    damaged = {
        "truncated": whole[:-10],
        "not zstd": b"plain text",
        "flipped": whole[:-4] + bytes(byte ^ 255 for byte in whole[-4:]),  # the checksum
        "followed by something else": whole + b"plain text",
    }
    file = tmp_path / "a.jsonl.zst"
    file.write_bytes(damaged[damage])
    message = problem(str(file))
    assert f"{file} is no whole zstd file" in message and "make or fetch it again" in message


@pytest.mark.parametrize("place", [200, 2000, 20_000])
def test_damage_inside_a_zstd_file_is_an_error_in_it(tmp_path, zstd, place):
    """What comes out may be noticed before the checksum is reached, as no JSON or no UTF-8."""
    whole, file = zstd(ROWS), tmp_path / "a.jsonl.zst"
    file.write_bytes(whole[:place] + b"\xff" * 40 + whole[place + 40 :])
    assert problem(str(file)).startswith(str(file))


def test_without_its_package_a_zstd_file_says_what_to_install(tmp_path, monkeypatch):
    for name in ("compression.zstd", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    file = tmp_path / "a.jsonl.zst"
    file.write_bytes(b"something")
    expected = f"{file} is compressed by zstd, which takes a package to read: pip install zstandard"
    assert problem(str(file)) == expected


def test_a_folder_is_read_in_the_order_of_its_names(write, tmp_path):
    write("b/2.txt", "four\n")
    write("b/1.jsonl", [{"text": "three"}])
    write("a.txt.gz", "one\ntwo\n")
    write("empty.txt", "")
    write("notes.pdf", "no text")
    write("._a.txt", b"\xff\xfe")
    write("b/.ipynb_checkpoints/2.txt", "four\n")
    write(".cache/deep/down.txt", "five\n")
    assert read(str(tmp_path)) == ["one", "two", "three", "four"]


def test_a_hidden_folder_that_is_asked_for_is_read(write, tmp_path):
    write(".notes/a.txt", "one\n")
    assert read(str(tmp_path / ".notes")) == ["one"]


def test_several_paths_are_read_one_after_the_other(write):
    assert read(write("b.txt", "one"), write("a.txt", "two")) == ["one", "two"]


def test_one_path_may_be_given_plainly(write):
    assert (documents(Source(write("a.txt", "one")))) == ["one"]


def test_a_hugging_face_dataset_is_streamed(write, tmp_path):
    write("data/train.jsonl", [{"text": "one"}, {"text": "two\n\n2"}])
    write("data/test.jsonl", [{"text": "three"}])
    name = f"hf:{tmp_path / 'data'}"
    assert read(name) == ["one", "two\n\n2"]
    assert read(name, paragraphs=True) == ["one", "two", "2"]
    assert read(f"{name}:test") == ["three"]
    assert "row 1: no field 'body', only 'text'" in problem(name, field="body")
    assert "the Hugging Face dataset cannot be read" in problem(f"{name}:nowhere")


def test_a_name_with_a_slash_that_is_no_file_is_a_dataset(monkeypatch):
    def load_dataset(name, split, streaming):
        if name == "someone/gone":
            raise ConnectionError("no network")
        return [{"text": f"{name} {split} {streaming}"}]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    assert read("someone/stories") == ["someone/stories train True"]
    message = problem("someone/gone")
    assert "no such file or folder" in message and "ConnectionError: no network" in message


SCRIPT = "Dataset scripts are no longer supported, but found proofs.py"


@pytest.mark.parametrize(
    ("path", "configuration", "split"),
    [
        ("hf:someone/proofs", None, "train"),
        ("hf:someone/proofs/arxiv:test", "arxiv", "test"),
        ("someone/proofs", None, "train"),
    ],
)
def test_a_dataset_with_a_loading_script_is_read_from_what_the_hub_converted(monkeypatch, path, configuration, split):
    def load_dataset(*name, split, streaming, revision=None, data_dir=None):
        if revision is None:
            assert name == ("someone/proofs", *([configuration] if configuration else []))
            raise RuntimeError(SCRIPT)
        assert streaming and revision == "refs/convert/parquet"
        return [{"text": f"{name[0]} {data_dir} {split}"}]

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    with pytest.warns(UserWarning, match="of a large dataset is only the beginning; for all of it fetch its files"):
        assert read(path) == [f"someone/proofs {configuration} {split}"]


def test_a_dataset_with_a_loading_script_that_was_not_converted_says_how_to_fetch_it(monkeypatch):
    def load_dataset(*name, revision=None, **_):
        raise ConnectionError("no such revision") if revision else RuntimeError(SCRIPT)

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        message = problem("hf:someone/proofs/arxiv")
    assert f"RuntimeError: {SCRIPT}" in message and "nor what the Hub converted it to" in message
    fetch = "fetch its files (hf download someone/proofs --repo-type dataset --local-dir FOLDER) and give the folder"
    assert message.endswith(fetch)


def test_other_errors_of_a_dataset_are_not_taken_for_a_loading_script(monkeypatch):
    def load_dataset(*name, revision=None, **_):
        assert revision is None
        raise RuntimeError("something else")

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    message = problem("hf:someone/proofs")
    assert message.endswith("(RuntimeError: something else)")


# What goes wrong ------------------------------------------------------------------------------------------------------


def test_a_missing_file_is_named():
    for path in ("nowhere.txt", "no/such/folder", "data/gone.txt", "./gone"):
        assert problem(path, error=FileNotFoundError) == f"no such file or folder: {path}"


def test_an_unknown_ending_is_refused_with_those_there_are(write):
    path = write("a.docx", "one")
    message = problem(path)
    assert path in message
    assert ".txt, .jsonl, .csv, .parquet, .fasta, .fa, each also with .gz or .zst" in message


def test_a_folder_with_nothing_readable_says_what_is_there(write, tmp_path):
    assert "it has no files" in problem(str(tmp_path))
    write("sub/a.pdf", "x")
    message = problem(str(tmp_path))
    assert f"nothing to read in the folder {tmp_path}" in message and "sub/a.pdf" in message and ".jsonl" in message


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.fasta", "a.txt.gz"])
def test_an_empty_file_is_an_error(write, name, tmp_path):
    path = write(name, "")
    assert path in problem(path)
    (tmp_path / name).write_bytes(b"")
    assert problem(path) == f"there is nothing to read in {path}: it is empty"


@pytest.mark.parametrize(("name", "content"), [("a.txt", "\n \n"), ("a.csv", "text\n"), ("a.jsonl", "\n")])
def test_a_file_without_text_is_an_error(write, name, content):
    path = write(name, content)
    assert problem(path) == f"there is nothing to read in {path}: it has no text"


def test_no_path_at_all_is_an_error():
    with pytest.raises(ValueError, match="give at least one file"):
        Source(())


def test_another_encoding_is_found_with_its_byte_line_and_offset(write):
    path = write("a.txt", "fine ü\n".encode() + "naïve\n".encode("latin-1"))
    assert problem(path) == f"{path}, line 2: byte 0xef at byte offset 10 is not UTF-8; save it as UTF-8"
    utf16 = write("b.txt", "one\n".encode("utf-16"))
    assert "line 1: byte 0xff at byte offset 0" in problem(utf16)
    after_mark = write("c.csv", b"\xef\xbb\xbftext\xe9\n")
    assert "line 1: byte 0xe9 at byte offset 7" in problem(after_mark)


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_a_missing_field_is_said_with_those_there_are(write, tmp_path, name):
    if name == "a.parquet":
        path = parquet(tmp_path / name, title=["I"], body=["one"])
    else:
        path = write(name, [{"title": "I", "body": "one"}] if name == "a.jsonl" else "title,body\nI,one\n")
    for field in (None, "content"):
        message = problem(path, field=field)
        assert path in message
        assert f"no field {field or 'text'!r}, only 'title', 'body'; say which field holds the text" in message


@pytest.mark.parametrize("line", ['{"text": "one"', "one", '{"text": "\x01"}', "[" * 100_000, '{"text": ' + "9" * 5000])
def test_malformed_json_is_found_with_its_line(write, line):
    path = write("a.jsonl", '{"text": "fine"}\n\n' + line + "\n")
    assert problem(path).startswith(f"{path}, line 3: malformed JSON (")


@pytest.mark.parametrize(("value", "shown"), [(None, "None"), (12, "12"), (["a"], "['a']")])
def test_a_value_that_is_no_string_is_found_with_its_line(write, value, shown):
    path = write("a.jsonl", [{"text": "fine"}, {"text": value}])
    assert f"{path}, line 2: the text is {shown}, which is no string" in problem(path)


def test_json_that_is_no_object_is_found_with_its_line(write):
    path = write("a.jsonl", ["one"])
    assert f"{path}, line 1: a JSON object belongs here, not 'one'" in problem(path)


def test_half_a_surrogate_pair_is_no_text(write):
    path = write("a.jsonl", '{"text": "\\ud83d\\ude00"}\n{"text": "\\ud83d"}\n')
    assert f"{path}, line 2: the text has half a surrogate pair" in problem(path)
    assert read(path, skip_bad=True) == ["😀"]


def test_a_parquet_value_that_is_no_string_is_found_with_its_row(tmp_path):
    assert "row 2: the text is None" in problem(parquet(tmp_path / "a.parquet", text=["one", None]))
    assert "row 1: the text is 5" in problem(parquet(tmp_path / "b.parquet", text=[5]))


def test_a_damaged_parquet_file_is_an_error(write, tmp_path):
    assert "no whole parquet file" in problem(write("a.parquet", "no parquet at all"))
    whole = open(parquet(tmp_path / "b.parquet", text=["one"] * 100), "rb").read()
    assert "no whole parquet file" in problem(write("c.parquet", whole[: len(whole) // 2]))


def test_a_csv_row_that_is_too_short_is_found_with_its_line(write):
    path = write("a.csv", 'id,text\n1,"two\nlines"\n2\n')
    assert f"{path}, line 4: the row has 1 columns, the header 2; put a text with commas" in problem(path)


def test_a_csv_row_that_is_too_long_is_found_with_its_line(write):
    path = write("a.csv", 'id,text\n1,"Well, hello"\n2,Hello, world\n3,bye\n')
    expected = f"{path}, line 3: the row has 3 columns, the header 2; put a text with commas, or what else separates"
    assert problem(path).startswith(expected)
    report = ReadReport()
    assert (documents(Source((path,), skip_bad=True), report)) == ["Well, hello", "bye"]
    assert report.skipped == 1 and report.first_problem.startswith(expected)
    assert "line 2: the row has 2 columns, the header 1" in problem(write("b.csv", "text\nHello, world\n"))


def test_commas_at_the_end_of_csv_rows_are_no_columns(write):
    assert read(write("a.csv", "id,text\n1,one,\n2,two, ,\n")) == ["one", "two"]


def test_a_quote_that_is_never_closed_is_an_error(write):
    path = write("a.csv", 'text\none\n"two\nthree\n')
    message = problem(path)
    assert f"{path}, line 3: malformed CSV (a quote that is opened here is never closed); look for a quote" in message
    closed_by_another = write("b.csv", 'id,text\n1,one\n2,"two\n3,three\n4,"four"\n')
    assert f"{closed_by_another}, line 3: malformed CSV (in line 5: " in problem(closed_by_another)


def test_fasta_without_a_header_is_an_error(write):
    path = write("a.fasta", "\nACGT\n")
    assert problem(path) == f"{path}, line 2: a FASTA record begins with a line that starts with '>'"


@pytest.mark.parametrize("damage", ["truncated", "not gzip", "flipped"])
def test_a_damaged_gzip_file_is_an_error(tmp_path, damage):
    whole = gzip.compress(os.urandom(4000).hex().encode())
    damaged = {"truncated": whole[:2000], "not gzip": b"plain text", "flipped": whole[:20] + b"\xff" * 40 + whole[60:]}
    file = tmp_path / "a.txt.gz"
    file.write_bytes(damaged[damage])
    message = problem(str(file))
    assert f"{file} is no whole gzip file" in message and "make or fetch it again" in message


# Going on nevertheless ------------------------------------------------------------------------------------------------


def test_bad_lines_are_skipped_and_counted_if_asked_to(write):
    lines = [
        b'{"text": "one"}',
        b"{",
        b'{"title": "x"}',
        b'{"text": 1}',
        b'{"text": "\xff"}',
        b"[]",
        b'{"text": "two"}',
    ]
    path = write("a.jsonl", b"\n".join(lines))
    report = ReadReport()
    assert (documents(Source((path,), skip_bad=True), report)) == ["one", "two"]
    assert (report.documents, report.skipped) == (2, 5)
    assert report.first_problem is not None and report.first_problem.startswith(f"{path}, line 2: malformed JSON")


def test_bad_lines_of_other_kinds_are_skipped_too(write, tmp_path):
    assert read(write("a.txt", b"one\n\xff\ntwo"), skip_bad=True) == ["one", "two"]
    assert read(write("a.csv", b'id,text\n1,one\n2\n3,"x"y\n4,\xff\n5,two\n'), skip_bad=True) == ["one", "two"]
    assert read(write("a.fa", "ACGT\n>1\none\n"), skip_bad=True) == ["one"]
    assert read(parquet(tmp_path / "a.parquet", text=["one", None, "two"]), skip_bad=True) == ["one", "two"]


def test_a_quote_that_is_never_closed_stops_reading_even_if_bad_lines_are_skipped(write):
    for end in ("", '4,"four"\n'):
        path = write("a.csv", 'id,text\n1,one\n2,"broken\n3,three\n' + end)
        assert problem(path, skip_bad=True).startswith(f"{path}, line 3: malformed CSV (")
        assert problem(path, skip_bad=True).endswith("it cannot be skipped, as nobody knows where the row ends")


def test_a_text_that_an_unquoted_line_break_cuts_off_is_an_error(write):
    path = write("a.csv", "text,label\none,1\ncut\noff,2\n")
    assert f"{path}, line 3: the row has 1 columns, the header 2" in problem(path)
    assert "or line breaks in quotes" in problem(path)


def test_a_row_with_a_line_in_another_encoding_is_skipped_as_a_whole(write):
    path = write("a.csv", b'id,text\n1,"one\ncaf\xe9\nend"\n2,two\n3,"three\n\xe9"\n4,four\n')
    report = ReadReport()
    assert (documents(Source((path,), skip_bad=True), report)) == ["two", "four"]
    assert report.skipped == 2
    assert report.first_problem == f"{path}, line 3: byte 0xe9 at byte offset 18 is not UTF-8; save it as UTF-8"
    assert "line 3: byte 0xe9" in problem(path)


def test_nothing_but_bad_lines_is_an_error_even_so(write):
    good, bad = write("a.txt", b"\xff\none"), write("a.jsonl", "{\n{\n")
    message = problem(good, bad, skip_bad=True)
    assert message.startswith(
        f"there is nothing to read in {bad}: every line is bad; the first bad line: {good}, line 1"
    )


def test_the_report_says_how_much_was_read(write):
    path = write("a.txt", "one\ntwo\n")
    report = ReadReport()
    assert len(documents(Source((path,)), report)) == report.documents == 2
    assert report.bytes == 8 and report.first_problem is None


# Fingerprints ---------------------------------------------------------------------------------------------------------


def test_a_fingerprint_changes_with_the_settings_and_the_files(write, tmp_path):
    path = write("in/a.txt", "one")
    sources = [
        Source((path,)),
        Source((path, path)),
        Source((path,), field="x"),
        Source((path,), paragraphs=True),
        Source((path,), skip_bad=True),
        Source(("hf:a/b",)),
        Source(("hf:a/b:test",)),
    ]
    prints = [fingerprint(source) for source in sources]
    assert len(set(prints)) == len(prints)
    assert fingerprint(Source((str(tmp_path / "in"),))) == prints[0]  # the same file
    write("in/b.txt", "two")
    assert fingerprint(Source((str(tmp_path / "in"),))) != prints[0]
    os.utime(path, ns=(1, 1))
    assert fingerprint(Source((path,))) != prints[0]


def test_a_dataset_in_a_folder_goes_by_its_files(write, tmp_path, monkeypatch):
    prints, addresses = [], []
    for name in "ab":
        write(f"{name}/corpus/train.jsonl", [{"text": name}])
        monkeypatch.chdir(tmp_path / name)
        for source in (Source(("hf:./corpus",)), Source(("hf:corpus:train",))):
            prints.append(fingerprint(source))
            addresses += address(source)["paths"]
    assert len(set(prints)) == 4
    corpora = [f"hf:{tmp_path / name / 'corpus'}" for name in "ab"]
    assert addresses == [corpora[0], f"{corpora[0]}:train", corpora[1], f"{corpora[1]}:train"]
    os.utime("corpus/train.jsonl", ns=(1, 1))
    assert fingerprint(Source(("hf:./corpus",))) not in prints
    with pytest.raises(FileNotFoundError, match="no such folder: /gone/corpus"):
        fingerprint(Source(("hf:/gone/corpus:test",)))


# Marked regions -------------------------------------------------------------------------------------------------------

TABLE = "id,sequence,h1_start,h1_end,h2_start,h2_end\none,QVKARDYW,0,2,3,7\n"


def test_regions_of_a_table_are_read_with_the_text(write):
    (found,) = read(write("chains.csv", TABLE), field="sequence", regions=("h1", "h2"))
    assert (found.text, found.ranges, len(found)) == ("QVKARDYW", ((0, 2), (3, 7)), 8)


@pytest.mark.parametrize(
    "content, wrong",
    [
        (TABLE.replace("h2_end", "h2_last"), "no field 'h2_end'.*--regions"),
        (TABLE.replace("0,2,3,7", "0,4,3,7"), r"one behind the other; these are \[0, 4, 3, 7\]"),
        (TABLE.replace("0,2,3,7", "0,2,3,9"), "of 8 characters"),
        (TABLE.replace("0,2,3,7", "0,2,x,7"), "whole numbers, these with '0', '2', 'x', '7'"),
    ],
)
def test_regions_that_cannot_be_are_refused(write, content, wrong):
    with pytest.raises(ValueError, match=wrong):
        read(write("chains.csv", content), field="sequence", regions=("h1", "h2"))


def test_regions_are_marked_in_tables_alone(write):
    assert "in tables alone" in problem(write("chains.fasta", ">one\nQVK\n"), regions=("h1",))
