#!/usr/bin/env python3
"""Writes what follows from commands.toml, which describes the commands of a plan and its own format.

    commands.py BUILD       the files that the build includes, below the folder BUILD
    commands.py --docs      docs/commands.md, to standard output

A file is only written where it changes. An error in the table ends the program with one line.
"""
import pathlib
import re
import sys
import tomllib

TABLE = pathlib.Path(__file__).with_name("commands.toml")
ROLES = ("read", "write", "sum")
DTYPES = ("T", "S", "R", "H", "Q", "F32", "I32")
# Type of an attribute: (in plan.fbs, in the op, its value from the op's).
TYPES = {"flag": ("bool", "UnitAttr", "{}"),
         "whole": ("ulong", "I64Attr", "{}"),
         "uint": ("uint", "I64Attr", "uint32_t({})"),
         "real": ("double", "F64Attr", "{}.convertToDouble()")}


class Operand:
    """An operand of a command, from its line in the table."""

    def __init__(self, line):
        match = re.fullmatch(r"(\w+) +(\w+)(\??) +(\w+) +\[(.*?)\] *(.*)", line)
        if not match or match[2] not in ROLES or match[4] not in DTYPES:
            raise ValueError(f"the operand '{line}' is not NAME ROLE DTYPE [SHAPE] FLAGS")
        self.name, self.role, optional, self.dtype, shape, flags = match.groups()
        self.optional = bool(optional)
        self.shape = [extent.strip() for extent in shape.split(",")] if shape else []
        below = re.search(r"below (.*)", flags)
        self.below = below[1].strip() if below else "1"
        self.flags = set(flags.split("below")[0].split())
        if unknown := self.flags - {"spaced", "flat", "exact", "products"}:
            raise ValueError(f"operand {self.name} has an unknown flag: {', '.join(unknown)}")
        self.spaced = "spaced" in self.flags


class Command:
    """A command, from its table. `numbers` are the names in shapes; `extents` those that are no attribute."""

    def __init__(self, name, entry):
        self.name = name
        self.camel = camel(name)
        self.by_hand = isinstance(entry, int)
        if self.by_hand:
            self.number = entry
            return
        self.number = entry.pop("number")
        self.summary = entry.pop("summary")
        self.text = entry.pop("text", "").strip()
        self.operands = [Operand(line) for line in entry.pop("operands")]
        self.attributes = {}  # name: (type, default or "")
        for line in entry.pop("attributes", []):
            match = re.fullmatch(r"(\w+) (flag|whole|uint|real)(?: = (.*))?", line)
            if not match:
                raise ValueError(f"the attribute '{line}' is not NAME TYPE or NAME TYPE = DEFAULT")
            self.attributes[match[1]] = (match[2], match[3] or "")
        self.absent, _, self.value = entry.pop("absent", "").partition(" = ")
        self.width = entry.pop("extents", "ulong")
        self.kern = entry.pop("kern", True)
        self.cuda = entry.pop("cuda", False)
        self.verify = entry.pop("verify", [])
        self.fields = entry.pop("fields").split()
        if entry:
            raise ValueError(f"it has the unknown key '{next(iter(entry))}'")
        self.sums = any(operand.role == "sum" for operand in self.operands)
        names = re.findall(r"[a-z_]\w*", " ".join([d for o in self.operands for d in o.shape] + [self.value]))
        self.numbers = list(dict.fromkeys(names))
        self.extents = [n for n in self.numbers if n not in self.attributes]
        known = [o.name for o in self.operands] + self.extents + list(self.attributes)
        known += ["accumulate"] if self.sums else []
        if sorted(known) != sorted(self.fields):
            raise ValueError(f"its fields are not {' '.join(known)}")


def camel(name):
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


def load():
    """All commands, by number."""
    table = tomllib.loads(TABLE.read_text())
    commands = []
    for name, entry in table.items():
        try:
            commands.append(Command(name, entry))
        except (KeyError, ValueError, AttributeError) as error:
            raise SystemExit(f"{TABLE.name}: command '{name}': {error}")
    return sorted(commands, key=lambda command: command.number)


# -- The plan file -------------------------------------------------------------------------------


def schema(commands, numbered):
    """The tables of `commands`, and the union of all that have a number, which plan.fbs includes."""
    out = ["namespace lmc.plan;", ""]
    for command in commands:
        out.append(f"table {command.camel} {{")
        operands = {o.name: o for o in command.operands}
        for name in command.fields:
            if name in operands:
                kind = "int = -1" if operands[name].optional else "uint"
            elif name in command.attributes:
                type, default = command.attributes[name]
                kind = TYPES[type][0] + (f" = {default}" if default else "")
            else:
                kind = "bool" if name == "accumulate" else command.width
            out.append(f"  {name}:{kind};")
        out.append("}")
    body = ", ".join(f"{command.camel} = {command.number}" for command in numbered)
    return out + [f"union CommandBody {{ {body} }}"]


def operands_of(commands):
    out = []
    for command in commands:
        out.append(f"inline Operands operandsOf(const {command.camel} &op) {{")
        rows = []
        for o in command.operands:
            role = {"read": "Role::Read", "write": "Role::Write",
                    "sum": "op.accumulate() ? Role::Accumulate : Role::Write"}[o.role]
            rows.append(f'{{"{o.name}", op.{o.name}(), {role}, {str(o.spaced).lower()}}}')
        out += ["  return {" + ",\n          ".join(rows) + "};", "}"]
    return out


def listed(commands):
    """LMC_COMMANDS(X): X(Name) for each command; _OF_TABLE: for those not by hand; _OF_TEMPLATES: with `cuda`."""
    def each(name, chosen):
        return [f"#define {name}(X)" + "".join(f" X({command.camel})" for command in chosen)]
    return (each("LMC_COMMANDS", commands) +
            each("LMC_COMMANDS_OF_TABLE", [c for c in commands if not c.by_hand]) +
            each("LMC_COMMANDS_OF_TEMPLATES", [c for c in commands if not c.by_hand and c.cuda]))


def expression(extent):
    """An extent of a shape as C++, with its names as they are: `product` bounds products."""
    factors = [factor.strip() for factor in extent.split("*")]
    return extent if len(factors) == 1 else "product({" + ", ".join(factors) + "})"


def shapes(commands):
    """The checks that all commands have alike, members of the verifier of plans."""
    out = []
    for command in commands:
        out += [f"Result<void> shapes(const plan::{command.camel} &op) {{", "  LMC_TRY(rule(op));"]
        first = next((o.name for o in command.operands if o.dtype == "T"), "")
        if first:
            out += [f"  const DType T = dtypeOf(op.{first}());", "  [[maybe_unused]] const DType S = sumType(T);"]
        for letter, check in (("H", "isBF16OrF32"), ("Q", "isEightBits")):
            if named := next((o.name for o in command.operands if o.dtype == letter), ""):
                out += [f"  const DType {letter} = dtypeOf(op.{named}());",
                        f"  if (!{check}({letter}))",
                        f'    return fail("operand {named} is {{}}", plan::EnumNameDType({letter}));']
        for name in command.numbers:
            if name != command.absent:
                out.append(f"  const uint64_t {name} = op.{name}();")
        if command.absent:
            most = expression(command.value)
            out += [f"  const uint64_t {command.absent} = op.{command.absent}() ? op.{command.absent}() : {most};",
                    f"  if ({command.absent} > {most})",
                    f'    return fail("it has {{}} rows of {{}}", {command.absent}, {most});']
        indexed = [expression(e) for o in command.operands if o.dtype == "I32" for e in o.shape if "*" in e]
        out.append(f"  LMC_TRY(extents({'T' if first else 'DType::F32'}, {{"
                   + ", ".join(dict.fromkeys(command.numbers + indexed)) + "}));")
        for o in command.operands:
            dtype = {"R": f"realOf(op.{o.name}())", "F32": "DType::F32", "I32": "DType::I32"}.get(o.dtype, o.dtype)
            if o.spaced:
                check = (f'matrix("{o.name}", op.{o.name}(), {dtype}, '
                         + ", ".join(expression(e) for e in o.shape) + ")")
            else:
                size = expression(" * ".join(o.shape)) if len(o.shape) > 1 else expression("".join(o.shape) or "1")
                check = f'operand("{o.name}", op.{o.name}(), {dtype}, {size})'
            out.append(f"  if (op.{o.name}() != -1)" if o.optional else "")
            out.append(f"  LMC_TRY({check});")
        out += ["  return {};", "}"]
    return [line for line in out if line]


# -- The compiler --------------------------------------------------------------------------------


def solved(command):
    """{extent: C++ that computes it from the shapes of the op's slices}, each after those that it needs.

    A dimension of a single extent says it before a product of several does: the product can be that of the elements alone,
    as for matrices that may be transposed.
    """
    found = {}
    dims = [(o, dim, text) for o in command.operands for dim, text in enumerate(o.shape)
            if not o.optional and "flat" not in o.flags]
    dims.sort(key=lambda each: sum(word in command.extents for word in re.findall(r"\w+", each[2])))
    for _ in command.extents:
        for o, dim, text in dims:
            got = f"extent(op.get{camel(o.name)}(), {dim})"
            if plus := re.fullmatch(r"(\w+) \+ (\d+)", text):
                unknown, value = plus[1], f"{got} - {plus[2]}"
            else:
                factors = text.split(" * ")
                open_ = [f for f in factors if f in command.extents and f not in found]
                if len(open_) != 1 or " / " in text:
                    continue
                unknown = open_[0]
                value = " / ".join([got] + ["body." + f if not f.isdigit() else f for f in factors if f != unknown])
            if unknown not in found:
                found[unknown] = value
    if missing := [extent for extent in command.extents if extent not in found]:
        raise SystemExit(f"{TABLE.name}: command '{command.name}': no shape says what {missing[0]} is")
    return found


def bodies(commands):
    """Members of the emitter: the table of a command from its op."""
    out = []
    for command in commands:
        out += [f"plan::{command.camel}T body(plan_ir::{command.camel}Op op) const {{",
                f"  plan::{command.camel}T body;"]
        for o in command.operands:
            out.append(f"  body.{o.name} = {'optional' if o.optional else 'sliceOf'}(op.get{camel(o.name)}());")
        for name, (type, _) in command.attributes.items():
            out.append(f"  body.{name} = {TYPES[type][2].format(f'op.get{camel(name)}()')};")
        if command.sums:
            out.append("  body.accumulate = op.getAccumulate();")
        for name, value in solved(command).items():
            cast = f"uint32_t({value})" if command.width == "uint" else value
            out.append(f"  body.{name} = {cast};")
        if command.absent:
            factors = " * ".join("body." + factor.strip() for factor in command.value.split("*"))
            out += [f"  if (body.{command.absent} == {factors})", f"    body.{command.absent} = 0;"]
        out += ["  return body;", "}"]
    return out


def attributes_of(command):
    """The attributes of a command's ops, as members of a list `ins`."""
    out = []
    for name, (type, default) in command.attributes.items():
        kind = TYPES[type][1]
        out.append(f'DefaultValuedAttr<{kind}, "{default}">:${name}' if default else f"{kind}:${name}")
    return out


def plan_ops(commands):
    out = []
    for command in commands:
        list_ = [f'{{"{o.name}", get{camel(o.name)}(), '
                 + {"read": "Read", "write": "Write", "sum": "getAccumulate() ? Accumulate : Write"}[o.role]
                 + (", mayBeSpaced" if o.spaced else "") + "}" for o in command.operands]
        list_.append('{"workspace", getWorkspace(), Scratch}')
        slices = [f"Optional<SliceType>:${o.name}" if o.optional else f"SliceType:${o.name}"
                  for o in command.operands] + ["Optional<SliceType>:$workspace"]
        lines = [f'"{o.name}{"?" if o.optional else ""}"' for o in command.operands] + ['"workspace?"']
        segments = "[AttrSizedOperandSegments]" if any(o.optional for o in command.operands) else "[]"
        out += [f'def {command.camel}Op : Plan_Command<"{command.name}", [{{',
                "  " + ", ".join(list_), f"}}], {segments}> {{", f'  let summary = "{command.summary}";',
                "  let fields = (ins " + ", ".join(slices + attributes_of(command)
                                                  + (["UnitAttr:$accumulate"] if command.sums else [])) + ");",
                "  let assemblyFormat = CommandFormat<[" + ", ".join(lines) + "]>.format;"]
        if "plan" in command.verify:
            out.append("  let hasVerifier = 1;")
        out.append("}")
    return out


def tensor(o):
    """The type of an operand of an op on tensors."""
    types = {"T": "F32, BF16, F64", "S": "F32, F64", "R": "F32, F64", "H": "F32, BF16",
             "Q": "F8E4M3FN, F8E5M2"}.get(o.dtype, o.dtype)
    return f"{'Ranked' if 'flat' in o.flags else str(len(o.shape)) + 'D'}TensorOf<[{types}]>"


def kern_ops(commands):
    out = []
    for command in commands:
        if not command.kern:
            continue
        inputs = [o for o in command.operands if o.role == "read"]
        results = [o for o in command.operands if o.role != "read"]
        list_ = []
        for o in command.operands:
            if o.role == "sum":
                list_.append('{"acc", getAcc(), Accumulate}')
            list_.append(f'{{"{o.name}", get{camel(o.name)}(), {"Read" if o.role == "read" else "Write"}'
                         + (", mayBeSpaced" if o.spaced else "") + "}")
        ins = [f"Optional<{tensor(o)}>:${o.name}" if o.optional else f"{tensor(o)}:${o.name}" for o in inputs]
        optional = [o.name for o in inputs if o.optional]
        if command.sums:
            optional.append("acc")
            ins += [f"Optional<{tensor(o)}>:$acc" for o in results if o.role == "sum"]
        given = [f"slice_{o.name}" for o in command.operands] + ["scratch"]
        given += [f"get{camel(name)}()" for name in command.attributes]
        given += ["bool(getAcc())"] if command.sums else []
        segments = "[AttrSizedOperandSegments]" if len(optional) > 1 else "[]"
        format_ = " `,` ".join(f"${o.name}" for o in inputs if not o.optional)
        format_ += "".join(f" (`{name}` ${name}^)?" for name in optional)
        # The plan numbers slices in the order in which they are made: those of results come first.
        create = [f"    ::mlir::Value slice_{o.name} = sliceOf(get{camel(o.name)}());"
                  for o in reversed(command.operands)]
        create.append(f"    ::lmc::plan_ir::{command.camel}Op::create(b, getLoc(), {', '.join(given)});")
        out += [f'def {command.camel}Op : Kern_TableCall<"{command.name}", [{{', "  " + ", ".join(list_),
                "  }], [{", *create, f"  }}], {segments}> {{", f'  let summary = "{command.summary}";']
        shapes_ = ", ".join(f"`{o.name}` `[{', '.join(o.shape)}]`" for o in command.operands)
        out += ["  let description = [{", f"{shapes_}.", "", command.text, "  }];",
                "  let fields = (ins " + ", ".join(ins + attributes_of(command)) + ");",
                "  let results = (outs " + ", ".join(f"{tensor(o)}:${o.name}" for o in results) + ");",
                f'  let assemblyFormat = "{format_} `:` functional-type(operands, results) attr-dict";']
        if "kern" in command.verify:
            out.append("  let hasVerifier = 1;")
        out.append("}")
    return out


def programs(commands):
    """The extracted programs of commands with templates (compiler/extract/ExtractCommand.cpp)."""
    out = []
    for command in commands:
        if not command.cuda:
            continue
        out += ["llvm::Expected<Program> programOf(const plan::Plan &plan, const plan::Command &command,",
                f"                                  const plan::{command.camel} &op, size_t launch) {{",
                f'  TableProgram made(plan, command, "{command.name}");']
        for o in command.operands:
            below = re.sub(r"[a-z]\w*", lambda name: f"op.{name[0]}()", o.below)
            if o.role == "read":
                call = f'input("{o.name}", op.{o.name}(), {below})'
            elif "products" in o.flags:
                call = (f'sumOfProducts("{o.name}", op.{o.name}()'
                        + (", op.accumulate())" if o.role == "sum" else ")"))
            else:
                kind = "exact" if o.dtype == "I32" or "exact" in o.flags else "result"
                call = f'{kind}("{o.name}", op.{o.name}())'
            out.append(f"  made.{call};")
        for name in dict.fromkeys(command.numbers + list(command.attributes) + ["accumulate"] * command.sums):
            value = f"op.{name}()"
            if name == command.absent:
                value += f" ? {value} : " + re.sub(r"[a-z]\w*", lambda factor: f"op.{factor[0]}()", command.value)
            out.append(f'  made.field("{name}", {value});')
        out += ["  complete(made, op);", "  return made.finish(launch);", "}"]
    return out


# -- Tests ---------------------------------------------------------------------------------------


def cases(commands):
    """The rows of kTable in test/simt/kernels/CommandsTest.cpp, which tests each command."""
    def of_numbers(text):
        return re.sub(r"[a-z_]\w*", lambda name: f'n.at("{name[0]}")', text)

    out = []
    for command in commands:
        most = of_numbers(command.value) if command.absent else "0"
        attributes = ", ".join(f'{{"{name}", "{type}", "{default}"}}'
                               for name, (type, default) in command.attributes.items())
        out += [f'{{"{command.name}", {{' + ", ".join(f'"{e}"' for e in command.extents) + "}, "
                + f'{{{attributes}}}, "{command.absent}", [](const Numbers &n) -> int64_t {{ return {most}; }}, {{']
        for o in command.operands:
            out.append(f'  {{"{o.name}", "{o.role}", {str(o.optional).lower()}, "{o.dtype}", '
                       f'{str("flat" in o.flags).lower()}, [](const Numbers &n) -> Shape {{ return {{'
                       + ", ".join(of_numbers(e) for e in o.shape) + "}; }},")
        out.append("}},")
    return out


# -- Documentation -------------------------------------------------------------------------------


def docs(commands):
    out = ["# Commands", "",
           "What a plan can tell a device to do. `ground/plan/commands.toml` says each command once;"
           " [adding.md](adding.md#a-command) says how to add one. An extent is a field of the command's table in"
           " the plan file; T is bf16, f32 or f64, S the dtype in which T is summed, f32 (f64 for f64), H is bf16 or"
           " f32, and Q an 8-bit float, E4M3 or E5M2. All"
           " matrices are row-major, and operands are dense but for those that may be spaced: their rows may lie"
           " apart. A command may also have a workspace.", "",
           "Written by hand in `ground/plan/plan.fbs`: " + ", ".join(c.name for c in commands if c.by_hand) + ".", ""]
    for command in commands:
        if command.by_hand:
            continue
        out += [f"## {command.name}", "", f"`{command.summary}`", ""]
        out += [command.text, ""] if command.text else []
        out += ["| operand | role | dtype | shape | |", "|---|---|---|---|---|"]
        for o in command.operands:
            notes = [note for note, holds in (("may be absent", o.optional), ("may be spaced", o.spaced)) if holds]
            role = {"sum": "written; with `accumulate` added to", "write": "written"}.get(o.role, "read")
            out.append(f"| `{o.name}` | {role} | {o.dtype} | `[{', '.join(o.shape)}]` | {', '.join(notes)} |")
        if command.attributes:
            out += ["", "Attributes: " + ", ".join(
                f"`{name}` ({type}{', default ' + default if default else ''})"
                for name, (type, default) in command.attributes.items()) + "."]
        if command.absent:
            out += ["", f"`{command.absent}` is 0 in the file where it is `{command.value}`."]
        out.append("")
    return out[:-1]


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    commands = load()
    if sys.argv[1] == "--docs":
        print("\n".join(docs(commands)))
        return
    table = [command for command in commands if not command.by_hand]
    for name, lines in [("ground/plan/commands.fbs", schema(table, commands)),
                        ("ground/plan/CommandList.inc", listed(commands)),
                        ("ground/plan/Operands.inc", operands_of(table)),
                        ("ground/plan/Shapes.inc", shapes(table)),
                        ("compiler/emit/Bodies.inc", bodies(table)),
                        ("compiler/extract/Programs.inc", programs(table)),
                        ("test/simt/kernels/Commands.inc", cases(table)),
                        ("dialects/plan/Commands.td", plan_ops(table)),
                        ("dialects/kern/Commands.td", kern_ops(table))]:
        path = pathlib.Path(sys.argv[1]) / name
        text = "\n".join([f"// Made of {TABLE.name} by commands.py."] + lines) + "\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


main()
