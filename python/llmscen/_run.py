"""The results of a run."""

from __future__ import annotations

import json
import os
from functools import cached_property
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any, Dict, Iterator, List, Literal, Optional, Sequence, Union

Verdict = Literal["pass", "fail", "inconclusive", "invalid", "error"]

# Metric of results.json, statistic, head.
_COLUMNS = [
    ("ttft_ms", "p50", "TTFT p50 (ms)"),
    ("ttft_ms", "p99", "TTFT p99 (ms)"),
    ("tpot_ms", "p50", "TPOT p50 (ms)"),
    ("e2e_ms", "p99", "E2E p99 (ms)"),
    ("request_throughput", None, "Requests/s"),
    ("output_tps", None, "Output tokens/s"),
]

_SIGNS = {"pass": "✓", "fail": "✗", "inconclusive": "?", "invalid": "⚠", "error": "✗"}
_COLORS = {"pass": "#00724f", "fail": "#b23c00"}

# Of objectives in a summary.
_ORDER = ["fail", "invalid", "inconclusive", "pass"]

# Rows of the summary in a notebook.
_ROWS = 50


class Run:
    """A run folder. `Run("reports/chat/latest")` opens an earlier run."""

    def __init__(self, folder: Union[str, "os.PathLike[str]"], reason: str = "") -> None:
        # Absolute, and not that of a later run where `latest` is given.
        self.folder = Path(folder).resolve()
        #: The headline of the verdict in one sentence; empty for a run that was opened from its folder.
        self.reason = reason

    @cached_property
    def results(self) -> Dict[str, Any]:
        """results.json; `llmscen schema --results` describes it."""
        results: Dict[str, Any] = json.loads((self.folder / "results.json").read_text(encoding="utf-8"))
        return results

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return str(self.results["name"])

    @property
    def verdict(self) -> Verdict:
        """`pass`, `fail`, `inconclusive`, `invalid` or `error`."""
        verdict: Verdict = self.results["verdict"]
        return verdict

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 3 error, 4 invalid, 5 inconclusive, 130 interrupted."""
        return int(self.results["exit_code"])

    @property
    def cases(self) -> List[Dict[str, Any]]:
        """The cases of `results`."""
        cases: List[Dict[str, Any]] = self.results["cases"]
        return cases

    @property
    def report(self) -> Dict[str, Path]:
        """The reports that were written: `html`, `md` and `junit`."""
        names = {"html": "report.html", "md": "report.md", "junit": "junit.xml"}
        paths = {key: self.folder / name for key, name in names.items()}
        return {key: path for key, path in paths.items() if path.is_file()}

    @property
    def charts(self) -> List[Path]:
        """The charts, by name."""
        folder = self.folder / "charts"
        return sorted(path for path in folder.glob("*") if path.suffix in (".png", ".svg"))

    def requests(self, library: Optional[Literal["polars", "pandas"]] = None) -> Any:
        """A data frame with a row per request: of polars, or of pandas if polars is not installed."""
        path = self.folder / "requests.parquet"
        for name in [library] if library else ["polars", "pandas"]:
            try:
                return import_module(name).read_parquet(path)
            except ImportError:
                continue
        wanted = library or "polars or pandas"
        raise ModuleNotFoundError(
            f'{wanted} cannot read Parquet files here; install it with: pip install "llmscen[{library or "polars"}]"'
        )

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, verdict={self.verdict!r})"

    def _repr_html_(self) -> str:
        """The summary that a notebook shows."""
        color = _COLORS.get(self.verdict, "#6b6b6b")
        sign = _SIGNS.get(self.verdict, "")
        parts = [
            f'<p><strong style="color:{color}">{sign} {escape(self.verdict.upper())}</strong> '
            f"<strong>{escape(self.name)}</strong> {escape(self.reason)}</p>"
        ]
        objectives = [(case, slo) for case in self.cases for slo in case["slo"]]
        objectives.sort(key=lambda pair: _ORDER.index(pair[1]["verdict"]))
        if objectives:
            heads = ["Verdict", "Case", "Objective", "Observed", "95 % bound", "n"]
            parts.append(_table(heads, (_objective_row(case, slo) for case, slo in objectives), len(objectives)))
        heads = ["Case", "OK", "Failed", *(head for _, _, head in _COLUMNS)]
        parts.append(_table(heads, (_case_row(case) for case in self.cases), len(self.cases)))
        parts.append(f"<p>Run folder: <code>{escape(str(self.folder))}</code></p>")
        return "<div>" + "".join(parts) + "</div>"


def _objective_row(case: Dict[str, Any], slo: Dict[str, Any]) -> List[str]:
    sign = _SIGNS.get(slo["verdict"], "")
    values = [_value(slo[key], slo["unit"]) for key in ("observed", "bound")]
    return [f"{sign} {slo['verdict'].upper()}", str(case["id"]), str(slo["expr"]), *values, str(slo["n"])]


def _case_row(case: Dict[str, Any]) -> List[str]:
    counts = case["counts"]
    row = [str(case["id"]), f"{counts['ok']} of {counts['scheduled']}", str(counts["failed"])]
    for metric, statistic, _ in _COLUMNS:
        value = case["metrics"].get(metric)
        row.append(_value(value[statistic] if statistic and value else value))
    return row


def _value(value: Optional[float], unit: Optional[str] = None) -> str:
    """A number in three significant digits."""
    if value is None:
        return "n/a"
    if unit == "share":
        value, unit = value * 100, "%"
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{text} {unit}" if unit else text


def _table(heads: Sequence[str], rows: Iterator[List[str]], count: int) -> str:
    """An HTML table of the first rows. All text is escaped."""

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line("td", row) for _, row in zip(range(_ROWS), rows))
    more = f"<p>{_ROWS} of {count} rows are shown.</p>" if count > _ROWS else ""
    return f"<table><thead>{line('th', heads)}</thead><tbody>{body}</tbody></table>{more}"
