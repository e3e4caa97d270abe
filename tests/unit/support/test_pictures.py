"""The comparison of pictures finds what a viewer would see, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw

from tests.support import pictures


def _page():
    page = Image.new("RGB", (390, 500), "#f4f6f9")
    draw = ImageDraw.Draw(page)
    draw.rectangle((10, 10, 380, 200), fill="#ffffff", outline="#dbe0e8")
    draw.text((20, 20), "Checkpoint 17 expired after 3.0 s", fill="#1b2330")
    draw.ellipse((30, 60, 42, 72), fill="#d55e00")
    return page


def test_equal_pictures_do_not_differ():
    assert pictures.difference(_page(), _page()) is None


@pytest.mark.parametrize("shade", [-12, 12])
def test_slightly_other_edges_of_letters_do_not_count(shade):
    values = np.asarray(_page()).astype(int)
    is_dark = values.sum(axis=2, keepdims=True) < 600
    other = Image.fromarray(np.clip(values + shade * is_dark, 0, 255).astype(np.uint8))

    assert pictures.difference(_page(), other) is None


def test_a_missing_mark_is_found_where_it_was():
    without = _page()
    ImageDraw.Draw(without).ellipse((30, 60, 42, 72), fill="#ffffff")

    found = pictures.difference(_page(), without)

    assert found is not None
    assert 1 <= found.squares <= 4
    assert [str(place) for place in found.places] == ["x 32 to 48, y 48 to 80"]
    assert found.drawn.getpixel((36, 66)) == (213, 94, 0)


def test_moved_text_is_found():
    moved = Image.new("RGB", (390, 500), "#f4f6f9")
    moved.paste(_page(), (0, 2))

    assert pictures.difference(_page(), moved) is not None


def test_another_size_is_a_difference_that_begins_where_the_smaller_page_ends():
    found = pictures.difference(_page(), _page().crop((0, 0, 390, 480)))

    assert found is not None
    assert found.said.startswith("390 x 480 px instead of 390 x 500 px")
    assert [place.top for place in found.places] == [480]
    assert found.drawn.size == (390, 500)


def test_differences_that_are_far_from_each_other_are_places_of_their_own_with_the_largest_first():
    other = _page()
    draw = ImageDraw.Draw(other)
    draw.rectangle((200, 300, 280, 380), fill="#d55e00")
    draw.rectangle((20, 440, 40, 460), fill="#0072b2")

    found = pictures.difference(_page(), other)

    assert found is not None
    assert [(p.left, p.top) for p in found.places] == [(192, 288), (16, 432)]


def test_a_page_without_a_kept_picture_is_a_difference_and_both_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(pictures, "SEEN", tmp_path / "seen")

    found = pictures.compare("job", _page())

    assert found is not None
    assert found.said == "there is no kept picture"
    assert {p.name for p in (tmp_path / "seen").iterdir()} == {"job.seen.png", "job.difference.png"}
    assert pictures.keep("job", _page()) < 5_000
    assert pictures.compare("job", _page()) is None


def test_a_report_shows_the_kept_picture_the_page_and_where_they_differ(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(pictures, "SEEN", tmp_path / "seen")
    pictures.keep("job", _page())
    other = _page()
    ImageDraw.Draw(other).ellipse((30, 60, 42, 72), fill="#ffffff")

    found = pictures.compare("job", other)
    assert found is not None
    written = pictures.report({"job": found}).read_text(encoding="utf-8")

    assert "x 32 to 48, y 48 to 80" in written
    for word in ("kept", "seen", "difference"):
        assert f'src="job.{word}.png"' in written
        assert (tmp_path / "seen" / f"job.{word}.png").is_file()
    pictures.clear()
    assert list((tmp_path / "seen").iterdir()) == []
