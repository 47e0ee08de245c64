"""Checks a page of `lmc report`: check-report.py PAGE [--browser CHROMIUM FOLDER [--layout [--all]]].

Without --browser: the page asks for nothing from elsewhere, its data is as in make-runs.py, and the texts of a hostile run are
only in the data. With it: the program CHROMIUM draws the page on a wide screen in light colours and on a narrow
one in dark colours, with --all also the other way round. A script uses the page as a reader does and checks that all texts can be
read. With --layout, it only checks the texts, so PAGE may be of any runs. FOLDER holds copies of the page and what Chromium keeps.
"""
import json
import math
import os
import pathlib
import re
import subprocess
import sys

# Stands before the script of the page. Errors of any script end up in data-error.
CATCH = "<script>addEventListener('error', (e) => { document.documentElement.dataset.error = e.message; });</script>"
# Functions that the two scripts below use. Lengths are in CSS pixels; half a pixel and less is rounding.
TOOLS = r"""
const out = document.documentElement.dataset, all = (q) => [...document.querySelectorAll(q)];
const check = (what, ok) => { if (!ok) out.error = (out.error || "") + "|" + what; };
const ROUNDING = 0.5;
// The smallest contrast of text that WCAG 2.1 allows (level AA).
const CONTRAST = 4.5;
// A column for several letters that is narrower than this one cannot be read.
const NARROW = 40;
// [red, green, blue, alpha] of a computed colour.
function rgba(text) {
  const parts = /^rgba?\(([^)]*)\)$/.exec(text);
  if (!parts) throw Error("the colour " + text);
  const [red, green, blue, alpha = 1] = parts[1].split(",").map(Number);
  return [red, green, blue, alpha];
}
const over = (top, below) => [0, 1, 2].map((k) => top[3] * top[k] + (1 - top[3]) * below[k]);
// The colour behind the content of an element.
function ground(node) {
  if (!node) return [255, 255, 255];
  const colour = rgba(getComputedStyle(node).backgroundColor);
  return colour[3] === 1 ? colour.slice(0, 3) : over(colour, ground(node.parentElement));
}
function luminance(colour) {
  const [red, green, blue] = colour.map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
function contrast(node) {
  const style = getComputedStyle(node), colour = rgba(node.namespaceURI.endsWith("svg") ? style.fill : style.color), behind = ground(node);
  for (let k = node; k; k = k.parentElement) colour[3] *= Number(getComputedStyle(k).opacity);
  const [low, high] = [luminance(over(colour, behind)), luminance(behind)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}
const inside = (a, b) => a.left >= b.left - ROUNDING && a.right <= b.right + ROUNDING && a.top >= b.top - ROUNDING && a.bottom <= b.bottom + ROUNDING;
const fitsAcross = (a, b) => a.left >= b.left - ROUNDING && a.right <= b.right + ROUNDING;
// Checks that the texts which an element shows now can be read; `least` is the least number of texts.
function checkLayout(when, part = document.body, least = 80) {
  const root = document.documentElement, faults = new Map();
  const fault = (what, text) => { if (!faults.has(what)) faults.set(what, text); };
  if (root.scrollWidth > root.clientWidth) fault(`the page is ${root.scrollWidth} wide`, "");
  const walker = document.createTreeWalker(part, NodeFilter.SHOW_TEXT);
  let texts = 0;
  while (walker.nextNode()) {
    const node = walker.currentNode, text = node.data.trim(), parent = node.parentElement;
    if (!text || parent.closest("script, noscript, option") || !parent.checkVisibility({ visibilityProperty: true })) continue;
    ++texts;
    if (!(contrast(parent) >= CONTRAST)) fault(`a contrast of ${contrast(parent).toFixed(2)}`, text);
    const range = document.createRange();
    range.selectNodeContents(node);
    const rect = range.getBoundingClientRect();
    const plot = parent.closest("svg");
    if (plot) {
      if (!inside(parent.getBoundingClientRect(), plot.getBoundingClientRect())) fault("a text of a chart leaves it", text);
      continue;
    }
    let box = parent, style = getComputedStyle(box);
    while (style.display === "inline") style = getComputedStyle(box = box.parentElement);
    // An ellipsis shows that there is more.
    if (style.textOverflow === "ellipsis") {
      if (box.clientWidth < NARROW && box.scrollWidth > box.clientWidth) fault("of a text, hardly more than an ellipsis", text);
      continue;
    }
    if (!fitsAcross(rect, box.getBoundingClientRect())) fault(`a text leaves its ${box.localName}`, text);
    if (/\w{3}/.test(text) && rect.width < NARROW && rect.height > 3 * parseFloat(style.fontSize)) fault("a column of single letters", text);
    for (let outer = box; outer && outer !== document.body; outer = outer.parentElement) {
      const { overflowX } = getComputedStyle(outer);
      if (overflowX === "auto" || overflowX === "scroll") break; // a reader can scroll to the text
      if ((overflowX !== "visible" || outer.matches(".panel, .tip, #bar, header")) && !fitsAcross(rect, outer.getBoundingClientRect()))
        fault(`a text leaves its ${outer.id || outer.className || outer.localName}`, text);
    }
  }
  check(`${when}: there are texts`, texts >= least);
  for (const plot of part.querySelectorAll("svg.plot")) {
    const labels = [...plot.querySelectorAll("text")].map((t) => [t.textContent, t.getBoundingClientRect()]);
    labels.forEach(([text, a], k) => labels.slice(k + 1).forEach(([other, b]) => {
      // The boxes of fonts are higher than their letters.
      if (a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom) fault("labels of a chart overlap", text + " and " + other);
    }));
  }
  // First cells stay in view while the others are scrolled.
  for (const cell of part.querySelectorAll("tbody th")) {
    const wide = cell.closest(".wide");
    if (wide && cell.offsetWidth > 0.6 * wide.clientWidth) fault("a first cell leaves no room for values", cell.textContent);
  }
  for (const tip of part.querySelectorAll(".tip")) if (!tip.hidden && !fitsAcross(tip.getBoundingClientRect(), { left: 0, right: root.clientWidth })) fault("the read-out leaves the page", tip.textContent);
  for (const [what, text] of faults) check(`${when}: ${what}: ${text.slice(0, 60)}`, false);
}
function showAll() {
  for (const details of all("details")) {
    details.open = true;
    details.dispatchEvent(new Event("toggle"));
  }
}
// A function that points with a mouse at a part of the width of the chart in `box`.
const pointer = (box) => (kind, part) => {
  const rect = box.getBoundingClientRect();
  box.dispatchEvent(new PointerEvent(kind, { bubbles: true, pointerType: "mouse", button: 0,
    clientX: rect.left + 58 + part * (rect.width - 58 - 14), clientY: rect.top + 60 }));
};
out.width = innerWidth;
out.scheme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
check("the ground is as the colours that the reader prefers", (luminance(ground(document.body)) < 0.2) === (out.scheme === "dark"));
"""
# Shows all that the page can show, and checks the texts.
LAYOUT = """<script>
(() => {""" + TOOLS + """
try {
  checkLayout("first");
  const boxes = all(".chart");
  for (const part of [0.02, 0.5, 0.98])
    for (const [k, box] of boxes.entries()) {
      pointer(box)("pointermove", part);
      checkLayout(`chart ${k} at ${part}`, box, 8);
    }
  boxes.at(-1).dispatchEvent(new PointerEvent("pointerleave"));
  showAll();
  checkLayout("all open");
  for (const by of ["hours", "steps"]) {
    all('[aria-label="over"] button').find((b) => b.dataset.value === by).click();
    checkLayout(`over ${by}`);
  }
  for (const button of all('[aria-label="best first"] button').filter((b) => b.dataset.value === "loss")) {
    button.click();
    const table = button.closest("section").querySelector("table"), column = [...table.querySelectorAll("thead th")].findIndex((c) => c.textContent === "loss");
    const losses = [...table.querySelectorAll("tbody tr")].map((row) => Number(row.cells[column].textContent));
    check("the lowest loss comes first", losses.length > 1 && losses.every((loss, k) => !k || losses[k - 1] <= loss));
  }
  all("#bar .runs button").at(-1).click();
  checkLayout("the last run left out");
} catch (error) { check(String(error.stack || error), false); }
out.checked = "yes";
})();
</script>"""
# What a reader does, and what must follow.
READER = """<script>
(() => {""" + TOOLS + """
try {
  const plots = all("svg.plot"), loss = () => all("svg.plot")[0], lines = () => loss().querySelectorAll("path.line").length;
  check("nine charts", plots.length === 9);
  check("lines of the loss: each step, mean, two sets; each step, mean, one set; a curve", lines() === 8);
  check("names are texts", all("#bar .runs .name").map((n) => n.textContent).includes("<script>document.title='taken'<"));
  check("events that were taken back are not drawn", loss().querySelectorAll(":scope > path[transform]").length === 6 + 2);
  const box = loss().parentNode, tip = box.querySelector(".tip"), at = pointer(box);
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
  check("over steps", /\\b[56]00 steps/.test(labels()) && lines() === 7);
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
  check("a row of a layer", [...layersOf(0)[0].cells].map((c) => c.textContent).join("|") === "0|30%|0%|1.25|2.5|\u2013|90%|300|");
  check("a row of a layer with choices that came too late", [...layersOf(0)[1].cells].map((c) => c.textContent).join("|") === "10|25%|26%|1.5|2|12.5%|25%|1|");
  check("an expert without tokens is marked", layersOf(0)[0].cells[2].classList.contains("warn") && !layersOf(0)[1].cells[2].classList.contains("warn"));
  check("layers by number", layersOf(0)[1].cells[0].textContent === "10" && layersOf(0)[0].querySelectorAll("svg.spark path").length === 1);
  check("the routers of a hostile run have no values", [...layersOf(1)[0].cells].map((c) => c.textContent).join("|") === "3|\u2013|\u2013|\u2013|\u2013|\u2013|\u2013|");
  check("settings that differ", all("section").some((s) => /Settings that differ.*lr_schedule\\.lr/.test(s.textContent) && !/training\\.seed/.test(s.textContent)));
  const settings = all("section").find((s) => /^Settings that differ/.test(s.textContent)), ranks = [...settings.querySelectorAll("tbody tr")];
  const first = () => settings.querySelector("tbody th").textContent.trim();
  check("columns of the settings that differ and of results", [...settings.querySelectorAll("thead th")].map((c) => c.textContent).join("|") === "run|lr_schedule.lr|loss|best validation loss|tokens/s|steps");
  check("a row of a run", ranks.length === 2 && [...ranks.find((r) => r.cells[0].textContent.trim() === "a").cells].slice(1).map((c) => c.textContent).join("|") === "1e-3|2.016|2.1|8,184|600");
  check("the run with the lowest loss comes first", first() === "a");
  press("best first", "loss");
  check("by loss", first() === "a" && /rank=loss/.test(location.hash));
  press("best first", "given");
  check("as given", first() === "a");
  check("stalls", ["waited for data", "validation after the step", "saved before the step"].every((w) => document.body.innerText.includes(w)));
  check("no element of a hostile text", !document.querySelector("img") && !out.taken && all("script").length === 4 && document.title.includes("report"));
} catch (error) { check(String(error.stack || error), false); }
out.checked = "yes";
})();
</script>"""


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


# Width, height and colours of screens. The program `chromium` has no window that is narrower than 500.
SCREENS = ((1400, 1000, "light"), (390, 900, "dark"))
OTHER_SCREENS = ((1400, 1000, "dark"), (390, 900, "light"))


def check_browser(page: str, chromium: str, folder: pathlib.Path, script: str, screens: tuple) -> None:
    # What Chromium keeps (profile, caches, crash reports) stays out of the user's folders.
    home = folder / "home"
    home.mkdir(exist_ok=True)
    kept = {name: str(home) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")}
    for width, height, scheme in screens:
        copy = folder / f"page-{width}-{scheme}.html"
        copy.write_text(page.replace("<head>", "<head>" + CATCH).replace("</body>", script + "</body>").replace('"by":"steps"', '"by":"tokens"'))
        done = subprocess.run(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={home / 'profile'}",
             f"--window-size={width},{height}", f"--blink-settings=preferredColorScheme={int(scheme == 'light')}", "--dump-dom", copy.as_uri()],
            capture_output=True, text=True, timeout=300, env=os.environ | kept)
        root = re.search(r"<html[^>]*>", done.stdout)
        assert root, done.stderr
        print(root.group())
        assert 'data-drawn="9"' in root.group() and 'data-checked="yes"' in root.group(), root.group()
        assert f'data-scheme="{scheme}"' in root.group(), root.group()
        assert f'data-width="{width}"' in root.group() or (chromium == "chromium" and width < 500), root.group()
        assert "data-error" not in root.group() and "data-taken" not in root.group(), root.group()


if __name__ == "__main__":
    text = pathlib.Path(sys.argv[1]).read_text()
    if sys.argv[2:3] == ["--browser"]:
        options = sys.argv[5:]
        check_browser(text, sys.argv[3], pathlib.Path(sys.argv[4]), LAYOUT if "--layout" in options else READER,
                      SCREENS + (OTHER_SCREENS if "--all" in options else ()))
    else:
        check_text(text)
