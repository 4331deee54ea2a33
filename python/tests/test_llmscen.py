"""Tests of the Python package, against the program of the installed wheel: python -m unittest discover python/tests."""

import contextlib
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import llmscen

# A busy machine is no reason to call these runs invalid.
SCENARIO = {
    "version": 1,
    "name": "chat",
    "target": {"url": "simulator", "model": "sim"},
    "request": {"max_tokens": 2},
    "dataset": {"kind": "prompt", "text": "hi"},
    "load": {"concurrency": 4, "requests": 40},
    "slo": ["error_rate < 10%"],
    "audit": {"lag_p99": "1h", "stall_p99": "1h", "cpu": 1, "achieved": 0},
}


class Folder(unittest.TestCase):
    """Each test has a folder of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)


class Runs(Folder):
    def test_a_run_has_its_verdict_results_charts_and_reports(self) -> None:
        Path("chat.yaml").write_text(json.dumps(SCENARIO))
        run = llmscen.run("chat.yaml", output="out", quiet=True)
        self.assertEqual((run.verdict, run.exit_code, run.name), ("pass", 0, "chat"))
        self.assertEqual(run.results["schema"], "llmscen/results/1")
        self.assertEqual(run.cases[0]["counts"]["ok"], 40)
        self.assertEqual(run.folder, Path("out").resolve())
        self.assertEqual(set(run.report), {"html", "md", "junit"})
        self.assertTrue(run.charts)
        self.assertTrue(all(path.is_file() for path in run.charts))
        self.assertIn("objective", run.reason)
        # The results stay readable from another folder.
        os.chdir("/")
        self.assertEqual(llmscen.Run(run.folder).verdict, "pass")

    def test_a_mapping_is_a_scenario_and_fields_are_overridden(self) -> None:
        overrides = {"load.requests": 7, "matrix": {"load.concurrency": [1, 2]}, "name": "other"}
        run = llmscen.run(SCENARIO, set=overrides, quiet=True)
        self.assertEqual(run.name, "other")
        self.assertEqual([case["counts"]["ok"] for case in run.cases], [7, 7])
        self.assertEqual(run.folder.parent, Path("reports/other").resolve())

    def test_variables_and_options_reach_the_program(self) -> None:
        scenario = {**SCENARIO, "load": {"requests": "${COUNT}"}, "matrix": {"load.concurrency": [1, 2]}}
        run = llmscen.run(scenario, env={"COUNT": "5"}, args=["--only", "concurrency=2"], quiet=True)
        self.assertEqual([case["counts"]["ok"] for case in run.cases], [5])

    def test_a_failed_objective_is_returned_and_raised_on_demand(self) -> None:
        broken = {"slo": ["error_rate > 50%"]}
        self.assertEqual(llmscen.run(SCENARIO, set=broken, quiet=True).verdict, "fail")
        with self.assertRaises(llmscen.VerdictError) as raised:
            llmscen.run(SCENARIO, set=broken, quiet=True, check=True)
        self.assertEqual(raised.exception.exit_code, 1)
        self.assertIn("error_rate > 50%", raised.exception.message)
        assert raised.exception.run is not None
        self.assertEqual(raised.exception.run.verdict, "fail")

    def test_progress_is_shown_on_stderr(self) -> None:
        with contextlib.redirect_stderr(io.StringIO()) as shown:
            llmscen.run(SCENARIO)
        self.assertIn("40 of 40 requests, 0 errors\n", shown.getvalue())
        with contextlib.redirect_stderr(io.StringIO()) as shown:
            llmscen.run(SCENARIO, quiet=True)
        self.assertEqual(shown.getvalue(), "")


class Errors(Folder):
    def test_an_error_of_the_scenario_has_its_message(self) -> None:
        with self.assertRaises(llmscen.ScenarioError) as raised:
            llmscen.run(SCENARIO, set={"load.concurency": 1}, quiet=True)
        self.assertIn("load.concurency", str(raised.exception))
        self.assertEqual((raised.exception.exit_code, raised.exception.run), (2, None))

    def test_an_error_of_the_command_line_has_its_message(self) -> None:
        with self.assertRaises(llmscen.ScenarioError) as raised:
            llmscen.run(SCENARIO, args=["--frobnicate"], quiet=True)
        self.assertIn("--frobnicate", str(raised.exception))

    def test_a_missing_file_is_named(self) -> None:
        with self.assertRaisesRegex(llmscen.ScenarioError, "nosuch.yaml"):
            llmscen.run("nosuch.yaml", quiet=True)

    def test_a_folder_is_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "one by one"):
            llmscen.run(".")

    def test_an_unreachable_server_fails_the_run(self) -> None:
        with self.assertRaisesRegex(llmscen.RunFailed, "cannot connect") as raised:
            llmscen.run(SCENARIO, set={"target.url": "http://127.0.0.1:9/v1/chat/completions"}, quiet=True)
        self.assertEqual(raised.exception.exit_code, 3)

    def test_an_interrupted_run_is_reported_and_leaves_no_process(self) -> None:
        scenario = {**SCENARIO, "load": {"concurrency": 1, "duration": "10m"}}
        script = f"import llmscen\nllmscen.run({scenario!r}, output='out')"
        python = subprocess.Popen(
            [sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert python.stderr is not None
        # Requests are sent.
        seen = ""
        while "requests" not in seen:
            character = python.stderr.read(1)
            self.assertTrue(character, seen)
            seen += character
        os.killpg(python.pid, signal.SIGINT)
        rest = python.stderr.read()
        python.wait()
        python.stderr.close()
        self.assertIn("KeyboardInterrupt", rest)
        self.assertTrue(llmscen.Run("out").results["interrupted"])
        with self.assertRaises(ProcessLookupError):
            os.killpg(python.pid, 0)


class Tables(Folder):
    def rows(self, library: str, reader: str) -> int:
        if not importlib.util.find_spec(library) or not importlib.util.find_spec(reader):
            self.skipTest(f"{library} is not installed")
        run = llmscen.run(SCENARIO, quiet=True)
        table = run.requests(library)  # type: ignore[arg-type]
        self.assertEqual(type(table).__module__.split(".")[0], library)
        self.assertIn("ttft_ms", list(table.columns))
        return len(table)

    def test_polars_reads_a_row_per_request(self) -> None:
        self.assertEqual(self.rows("polars", "polars"), 40)

    def test_pandas_reads_a_row_per_request(self) -> None:
        self.assertEqual(self.rows("pandas", "pyarrow"), 40)

    def test_a_missing_library_is_named(self) -> None:
        with self.assertRaisesRegex(ModuleNotFoundError, r"pip install \"llmscen\[nosuch\]\""):
            llmscen.Run(".").requests("nosuch")  # type: ignore[arg-type]


class Notebook(Folder):
    def results(self, cases: int = 1) -> llmscen.Run:
        objective = {"expr": "ttft.p95 < 1ms", "observed": 1234.5, "bound": None, "n": 9, "note": None}
        case = {
            "id": "a=<b>",
            "counts": {"ok": 8, "scheduled": 9, "failed": 1},
            "metrics": {"ttft_ms": {"p50": 1.23456, "p99": 2000.0}, "tpot_ms": None, "output_tps": 12.0},
            "slo": [
                {**objective, "expr": "error_rate < 1%", "verdict": "pass", "unit": "share", "observed": 0.005},
                {**objective, "verdict": "fail", "unit": "ms"},
            ],
        }
        results = {"name": "<script>alert(1)</script>", "verdict": "fail", "exit_code": 1, "cases": [case] * cases}
        Path("results.json").write_text(json.dumps(results))
        return llmscen.Run(".", reason="1 of 2 <objectives> failed")

    def test_the_summary_escapes_all_text(self) -> None:
        html = self.results()._repr_html_()
        for raw in ("<script>", "<objectives>", "a=<b>", "< 1ms"):
            self.assertNotIn(raw, html)
        for escaped in ("&lt;script&gt;", "a=&lt;b&gt;", "ttft.p95 &lt; 1ms"):
            self.assertIn(escaped, html)

    def test_the_summary_begins_with_verdict_and_failures(self) -> None:
        html = self.results()._repr_html_()
        self.assertLess(html.index("✗ FAIL"), html.index("ttft.p95"))
        self.assertLess(html.index("ttft.p95"), html.index("error_rate"))
        for cell in ("1,234 ms", "0.5 %", "n/a", "8 of 9", "1.23", "2,000"):
            self.assertIn(f"<td>{cell}</td>", html)

    def test_a_large_run_is_cut(self) -> None:
        html = self.results(cases=70)._repr_html_()
        self.assertEqual(html.count("<tr>"), 2 + 50 + 50)
        self.assertIn("50 of 140 rows are shown.", html)
        self.assertIn("50 of 70 rows are shown.", html)


class Program(unittest.TestCase):
    def test_the_module_is_the_program(self) -> None:
        shown = subprocess.run(
            [sys.executable, "-m", "llmscen", "--version"], check=True, capture_output=True, text=True
        ).stdout
        direct = subprocess.run([llmscen.binary(), "--version"], check=True, capture_output=True, text=True).stdout
        self.assertEqual(shown, direct)
        self.assertTrue(shown.startswith("llmscen "))


if __name__ == "__main__":
    unittest.main()
