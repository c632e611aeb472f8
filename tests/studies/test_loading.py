"""Datasets from files."""

import numpy as np
import pytest

import dpverify as dpv
from dpverify.studies.loading import load_data, read_document


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("column.csv", "1\n2\n3\n", [1, 2, 3]),
        ("column.txt", "# a comment\n1\n\n2\n3", [1, 2, 3]),
        ("row.csv", "1,2,3\n", [1, 2, 3]),
        ("number.csv", "5\n", [5]),
        ("table.csv", "1,2\n3,4\n", [[1, 2], [3, 4]]),
        ("column.json", "[1, 2, 3]", [1, 2, 3]),
        ("marked.csv", "\ufeff1,2\n3,4\n", [[1, 2], [3, 4]]),  # a byte order mark, as spreadsheets write it
        ("marked.json", "\ufeff[1, 2, 3]", [1, 2, 3]),
    ],
)
def test_a_column_and_a_row_are_arrays_of_one_dimension(name, text, expected, tmp_path):
    (tmp_path / name).write_text(text)
    data = load_data(name, tmp_path)
    assert data.shape == np.shape(expected)
    assert data.tolist() == expected


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("semicolons.csv", "1;2\n3;4\n", "string '1;2' to float64 at line 1, column 1; expected numbers only, commas"),
        ("comma.csv", "1\n2,\n", "columns changed from 1 to 2 at line 2; expected numbers only, commas"),
        ("ragged.txt", "1 2\n3\n", "columns changed from 2 to 1 at line 2; expected numbers only, spaces"),
        ("words.csv", "a\nb\n", "no header line"),
        ("empty.txt", "", "no data"),
        ("half.json", "[1, 2", "expected a JSON document"),
        ("text.npy", "1 2 3", "expected a NumPy array of numbers"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(name, text, message, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(dpv.InputError, match=f"data: {name}: ") as refusal:
        load_data(name, tmp_path)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_document_may_begin_with_a_byte_order_mark(tmp_path):
    (tmp_path / "a.toml").write_text("\ufeffseeds = 2\n")
    assert read_document(tmp_path / "a.toml", ("seeds",), "a study", "docs/studies.md") == {"seeds": 2}
