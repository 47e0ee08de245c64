"""Checks a page of `lmc report`: check-report.py PAGE [--browser FOLDER].

Without --browser: the page asks for nothing from elsewhere, its data is as in make-runs.py, and the texts of a hostile run are
only in the data. With it: Chromium draws the page, and a script uses it as a reader does.
"""
import json
import math
import pathlib
import re
import subprocess
import sys

# What a reader does, and what must follow. Errors of any script end up in data-error.
READER = """<script>
(() => {
const out = document.documentElement.dataset, all = (q) => [...document.querySelectorAll(q)];
const check = (what, ok) => { if (!ok) out.error = (out.error || "") + "|" + what; };
try {
  const plots = all("svg.plot"), loss = () => all("svg.plot")[0], lines = () => loss().querySelectorAll("path.line").length;
  check("nine charts", plots.length === 9);
  check("lines of the loss: each step, mean, two sets; each step, mean, one set; a curve", lines() === 8);
  check("names are texts", all("#bar .runs .name").map((n) => n.textContent).includes("<script>document.title='taken'<"));
  check("events that were taken back are not drawn", loss().querySelectorAll(":scope > path[transform]").length === 6 + 2);
  const box = loss().parentNode, rect = box.getBoundingClientRect(), tip = box.querySelector(".tip");
  const at = (kind, part) => box.dispatchEvent(new PointerEvent(kind, { bubbles: true, pointerType: "mouse", button: 0,
    clientX: rect.left + 58 + part * (rect.width - 58 - 14), clientY: rect.top + 60 }));
  at("pointermove", 0.5);
  check("the read-out shows the loss of step 300", !tip.hidden && /5\\.527/.test(tip.textContent) && /step 300/.test(tip.textContent));
  check("the read-out names the run", tip.querySelector("td.name").textContent === "a");
  check("the read-out shows the warning", /12 deviations/.test(tip.textContent));
  check("all charts have the crosshair", all("path.cross").filter((c) => c.getAttribute("visibility") === "visible").length === 9);
  box.dispatchEvent(new PointerEvent("pointerleave"));
  check("the read-out goes away", tip.hidden);
  const press = (label, value) => all(`[aria-label="${label}"] button`).find((b) => b.dataset.value === value).click();
  const labels = () => [...loss().querySelectorAll("text")].map((t) => t.textContent).join(" ");
  const drawn = () => loss().querySelector("path.line").getAttribute("d"), linear = drawn();
  press("loss", "log");
  check("the logarithmic scale draws another curve", drawn() !== linear && /scale=log/.test(location.hash));
  press("over", "steps");
  check("over steps", /steps/.test(labels()) && /600/.test(labels()) && lines() === 7);
  press("over", "hours");
  check("over hours", /of training/.test(labels()));
  press("over", "tokens");
  all("#bar .runs button")[1].click();
  check("a run is left out", lines() === 5 && /hide=1/.test(location.hash));
  at("pointerdown", 0.25); at("pointermove", 0.5); at("pointerup", 0.5);
  check("zoomed", /from=/.test(location.hash) && !/\\b0 /.test(labels()));
  document.querySelector(".unzoom").click();
  check("shows all again", !/from=/.test(location.hash));
  all("#bar .runs button")[1].click();
  const events = document.querySelector("details.events");
  events.open = true;
  events.dispatchEvent(new Event("toggle"));
  check("the list of events", events.querySelectorAll("tbody tr").length === 8 + 3 && /\\(taken back\\)/.test(events.textContent));
  check("evaluations", all("section").some((s) => /Evaluations of exports.*200400hellaswag\\/acc,none0.450.65$/.test(s.textContent)));
  check("texts, the latest first", /Once upon800  text 0 of step 800\\nand more700/.test(all("details summary.prompt")[0].parentNode.textContent));
  check("texts of all prompts", all("details summary.prompt").length === 3 && all("td.generated").length === 6 + 6 + 1);
  const updates = document.querySelector("details.updates"), rowsOf = () => [...updates.querySelectorAll("table")[0].querySelectorAll("tbody tr")];
  const names = () => rowsOf().map((r) => r.cells[0].textContent).join(" ");
  check("a few tensors are shown at once", updates.open && /^Updates of tensors \\(5\\)$/.test(updates.querySelector("summary").textContent));
  check("tensors in the order of the model", names() === "embed up_proj down_proj bias");
  check("a row of a tensor", [...rowsOf()[1].cells].map((c) => c.textContent).join("|") === "up_proj|1e-3|0.75|300||0.02|0.02");
  check("a tensor without a ratio", rowsOf()[3].cells[1].textContent === "\u2013");
  const points = rowsOf()[1].querySelector("svg.spark path").getAttribute("d").split(/[ML]/).slice(1).map((p) => p.split(" ").map(parseFloat));
  check("a line has its spike at the highest place of the scale", points.length === 38 && points[18][1] === 2 && points.every((p, k) => k === 18 || p[1] > 10));
  check("the line of zeros is empty", rowsOf()[3].querySelector("svg.spark path").getAttribute("d") === "");
  press("order", "ratio");
  check("by latest ratio", names() === "down_proj up_proj embed bias" && /sort=ratio/.test(location.hash));
  press("order", "highest");
  check("by highest ratio", names() === "up_proj down_proj embed bias");
  press("order", "model");
  check("order of the model again", names() === "embed up_proj down_proj bias");
  check("tensors of a run", /latest are of step 600/.test(updates.textContent) && updates.querySelectorAll("table").length === 2);
  check("the name of a tensor is a text", updates.querySelectorAll("table")[1].querySelector("tbody th").textContent.includes("onerror"));
  const routers = document.querySelector("details.routers"), layersOf = (k) => [...routers.querySelectorAll("table")[k].querySelectorAll("tbody tr")];
  check("a row of a layer", [...layersOf(0)[0].cells].map((c) => c.textContent).join("|") === "0|30%|0%|1.25|2.5|90%|300|");
  check("an expert without tokens is marked", layersOf(0)[0].cells[2].classList.contains("warn") && !layersOf(0)[1].cells[2].classList.contains("warn"));
  check("layers by number", layersOf(0)[1].cells[0].textContent === "10" && layersOf(0)[0].querySelectorAll("svg.spark path").length === 1);
  check("the routers of a hostile run have no values", [...layersOf(1)[0].cells].map((c) => c.textContent).join("|") === "3|\u2013|\u2013|\u2013|\u2013|\u2013|\u2013|");
  check("settings that differ", all("section").some((s) => /Settings that differ.*lr_schedule\\.lr/.test(s.textContent) && !/training\\.seed/.test(s.textContent)));
  check("stalls", ["waited for data", "validation after the step", "saved before the step"].every((w) => document.body.innerText.includes(w)));
  check("nothing wider than the page", document.documentElement.scrollWidth <= innerWidth);
  check("no element of a hostile text", !document.querySelector("img") && !out.taken && all("script").length === 4 && document.title.includes("report"));
} catch (error) { check(String(error.stack || error), false); }
out.checked = "yes";
})();
</script>"""
CATCH = "<script>addEventListener('error', (e) => { document.documentElement.dataset.error = e.message; });</script>"


def data_of(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1))


def check_text(page: str) -> None:
    addresses = set(re.findall(r"https?://[^\"'\s)]*", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}, addresses
    assert not re.search(r"<(link|img|iframe|object|embed|base)\b|\bsrc=|@import|url\((?!#)|fetch\(|XMLHttpRequest|WebSocket|import\(", re.sub(
        r'<script type="application/json".*?</script>', "", page, flags=re.S))
    assert page.count("<script") == page.count("</script>") == 2
    assert "default-src 'none'" in page
    data = data_of(page)
    assert data["by"] == "steps" and data["reload_seconds"] == 0
    a, hostile = data["runs"]
    facts = a["facts"]
    assert (a["name"], facts["steps"], facts["tokens"], facts["starts"], facts["warnings"]) == ("a", 600, 600 * 4096, 2, 2)
    assert facts["seconds"] == 600 * 0.5 + 4.0 + 6 * 2.0 + 5.0
    assert facts["ended"] and facts["ending"] == "exit code 0" and facts["plan_hash"] == "ab12" * 16
    assert abs(facts["median_tokens_per_second"] / 8192 - 1) < 0.001
    assert [(v["set"], v["best"]["step"]) for v in facts["validation"]] == [("", 600), ("code", 600)]
    spike = 2 + 4 * math.exp(-300 / 60) + 3.5
    assert any(abs(y - spike) < 1e-4 for y in a["lines"]["loss"]["y"])
    assert [e["taken_back"] for e in a["events"] if e["kind"] == "warning"] == [False, True]
    assert {(s["part"], s["step"]) for s in a["slow"]} == {("data", 450), ("save", 401)} | {("validation", k) for k in range(100, 600, 100)}
    assert a["evaluations"] == [{"step": step, "values": {"hellaswag/acc,none": 0.25 + step / 1000}} for step in (200, 400)]
    assert [(g["prompt"], [t["step"] for t in g["texts"]]) for g in a["generated"]] == [
        ("Once upon", list(range(300, 900, 100))), ("def f(x):", list(range(300, 900, 100)))]
    assert a["generated"][0]["texts"][-1]["text"] == "  text 0 of step 800\nand more" and "onerror" in hostile["generated"][0]["prompt"]
    assert hostile["facts"]["ended"] is False and "onerror" in hostile["events"][1]["text"]
    updates = a["updates"]
    embed, up, down, bias = updates["tensors"]
    assert [t["name"] for t in updates["tensors"]] == ["embed", "up_proj", "down_proj", "bias"] and updates["left_out"] == 0
    assert updates["step"] == 600 and updates["steps"] == list(range(16, 600, 16)) + [600]  # groups of four of the 150 lines
    assert [t["ratio"] for t in updates["tensors"]] == [3.33333e-06, 1e-3, 5e-3, None]
    assert [t["highest"] for t in updates["tensors"]] == [{"step": 4, "value": 5e-4}, {"step": 300, "value": 0.75},
                                                          {"step": 4, "value": 5e-3}, {"step": 4, "value": 0}]
    assert up["ratios"] == [1e-3] * 18 + [0.75] + [1e-3] * 19 and bias["ratios"] == [0] * 38
    assert embed["ratios"] == [float(f"{2e-3 / step:.3g}") for step in range(4, 600, 16)]
    assert (down["first_rms"], down["last_rms"]) == (0.0200001, 0.020012)
    routers = a["routers"]
    assert routers["step"] == 600 and routers["steps"] == list(range(16, 600, 16)) + [600] and routers["left_out"] == 0
    busy, even = routers["layers"]
    assert (busy["layer"], busy["max_load"], busy["min_load"], busy["entropy"], busy["balance_loss"]) == (0, 0.3, 0, 1.25, 2.5)
    assert busy["highest"] == {"step": 300, "value": 0.9} and busy["loads"] == [0.3] * 18 + [0.9] + [0.3] * 19
    assert (busy["late"], even["late"]) == (None, 0.125)
    assert (even["layer"], even["min_load"], even["highest"]) == (10, 0.26, {"step": 1, "value": 0.25})
    assert [(layer["layer"], layer["max_load"]) for layer in hostile["routers"]["layers"]] == [(3, None)]
    assert "onerror" in hostile["updates"]["tensors"][0]["name"]
    assert [d["key"] for d in data["differences"]] == ["lr_schedule.lr"]
    assert data["curves"][0]["name"] == "curve" and data["curves"][0]["y"] == [4.5, 3, 2.5]


def check_browser(page: str, folder: pathlib.Path) -> None:
    for width, height in ((1400, 1000), (500, 900)):  # Chromium has no narrower window
        copy = folder / f"page-{width}.html"
        copy.write_text(page.replace("<head>", "<head>" + CATCH).replace("</body>", READER + "</body>").replace('"by":"steps"', '"by":"tokens"'))
        done = subprocess.run(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={folder / 'profile'}",
             f"--window-size={width},{height}", "--dump-dom", copy.as_uri()],
            capture_output=True, text=True, timeout=300)
        root = re.search(r"<html[^>]*>", done.stdout)
        assert root, done.stderr
        print(width, root.group())
        assert 'data-drawn="9"' in root.group() and 'data-checked="yes"' in root.group(), root.group()
        assert "data-error" not in root.group() and "data-taken" not in root.group(), root.group()


if __name__ == "__main__":
    text = pathlib.Path(sys.argv[1]).read_text()
    if sys.argv[2:3] == ["--browser"]:
        check_browser(text, pathlib.Path(sys.argv[3]))
    else:
        check_text(text)
