"""Counts how many places know a thing that should be declared once, and holds them to bounds.

  commands        product sources that name a command, besides its own files (whose name has the
                  command's: Attention*.cpp are AttentionGrad's own too)
  targets         string tests on a target outside of the folders of targets
  architectures   places outside of models/ that know a model architecture
  signals         places that change what signals do, outside of ground/support/Signals.cpp,
                  ChildSignals.cpp, which blocks them, and the SIMT executor, whose handler of faults
                  has a stack of its own
  process         places that fork, change the environment or the locale, or read numbers by the
                  locale: a fork is sound, and a change of the environment is no race, only while a
                  process has one thread
  JSON in headers headers that include nlohmann/json.hpp, which takes a second to compile, though
                  they only name its types: nlohmann/json_fwd.hpp does for them
  errors          places that return the error of a Result in two lines of their own, where LMC_TRY
                  says the same in one

Prints each count with its bound, and the places where a bound is broken; exit code 1 then.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOPS = ("ground", "corpus", "runtime", "dialects", "passes", "compiler", "models", "tools")
SUFFIXES = (".cpp", ".h", ".td", ".fbs", ".cuh", ".def")
# (command as C++ writes it, what its own files are called, bound)
COMMANDS = [("ScatterAdd", "scatteradd", 10), ("AttentionGrad", "attention", 12)]
TARGET_TEST = re.compile(r'(?:[!=]=|starts_with\(|rfind\(|\.Cases?\()\s*"(?:cuda|cpu)\b|\bis(?:Cuda|Cpu)\b')
TARGET_FOLDERS = ("compiler/targets/", "runtime/device/")
ARCHITECTURE = re.compile(r'"(llama|mistral|Llama\w*|Mistral\w*)"|architecture\s*[!=]=')

SIGNALS = re.compile(r"\bsigaction\s*\(|\bsignal\((?=SIG)|(?:std)?::signal\s*\(|\bsigset\s*\(|SA_SIGINFO"
                     r"|\bsigprocmask\s*\(|\bpthread_sigmask\s*\(|SIG_UNBLOCK|\bPrintStackTraceOnErrorSignal\b|\bInitLLVM\b")
SIGNAL_FILES = ("ground/support/Signals.cpp", "tools/lmc-run/launch/ChildSignals.cpp", "test/simt/Executor.cpp")

# These files may do it: the launchers have one thread, and main.cpp and GlooWorld.cpp change the environment before a
# run starts threads that read it.
PROCESS = re.compile(r"\bv?fork\(|\bclone\(|\b(?:un)?setenv\(|\bputenv\(|\bsetlocale\(|locale::global"
                     r"|\bstrto[df]\(|\bstrtold\(|\bsto[df]\(|\bstold\(|\bato[f]\(")
PROCESS_FILES = ("tools/lmc-run/end/Supervise.cpp", "tools/lmc-run/launch/Launch.cpp", "tools/lmc-run/main.cpp",
                 "runtime/comm/GlooWorld.cpp")

# LMC_TRY by hand: what is tested, and the error that is returned, are of one value.
ERROR_BY_HAND = re.compile(r"if \((?:[^;{}]*; )?!([\w.>*-]+)\)\s*\{?\s*return \1\.error\(\);(?!\s*\}?\s*else)")

# What needs the whole type: a value of it, a name inside of it, or a call on a value.
WHOLE_JSON = re.compile(r"[jJ]son \w+(?: =|;)|json::\w|->is_\w+\(|\.at\(\"")


def headers():
    for top in (*TOPS, "test", "bench"):
        for path in sorted((ROOT / top).rglob("*.h")):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def product():
    for top in TOPS:
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in SUFFIXES:
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def bench():
    for path in sorted((ROOT / "bench").rglob("*.cpp")):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def code_of(line):
    """A line without its comment."""
    return re.sub(r"//.*", "", line)


def places(files, pattern, allowed):
    return [f"{name}:{number}: {line.strip()}" for name, text in files
            if not name.startswith(allowed)
            for number, line in enumerate(text.splitlines(), 1) if pattern.search(code_of(line))]


def main():
    files = list(product())
    broken = False

    def hold(what, found, bound):
        nonlocal broken
        print(f"{what}: {len(found)}, at most {bound}")
        if len(found) > bound:
            broken = True
            print("".join(f"  {place}\n" for place in found), end="")

    for command, own, bound in COMMANDS:
        named = [name for name, text in files if command in text
                 and own not in pathlib.PurePosixPath(name).name.lower().replace("_", "")]
        hold(f"sources that name the command {command}", named, bound)
    hold("string tests on a target", places(files, TARGET_TEST, TARGET_FOLDERS), 0)
    hold("places that know an architecture", places(files, ARCHITECTURE, ("models/",)), 0)
    hold("places that change what signals do", places([*files, *bench()], SIGNALS, SIGNAL_FILES), 0)
    hold("places that fork, or change the environment or the locale", places(
        [(name, text) for name, text in files if name.startswith(("ground/", "corpus/", "runtime/", "tools/"))], PROCESS, PROCESS_FILES), 0)
    hold("headers that include the whole of JSON without need",
         [name for name, text in headers() if "<nlohmann/json.hpp>" in text
          and not any(WHOLE_JSON.search(code_of(line)) for line in text.splitlines())], 0)
    hold("places that return the error of a Result by hand",
         [f"{name}:{text.count(chr(10), 0, found.start()) + 1}: {' '.join(found.group().split())}"
          for name, text in [*files, *bench()] for found in ERROR_BY_HAND.finditer(text)], 0)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
