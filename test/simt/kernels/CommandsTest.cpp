// Every command of ground/plan/commands.toml on each device: the CPU's code, and the CUDA kernels
// on the SIMT executor. The program that compiler/extract writes for the command draws its inputs
// and checks the results, and must find each mistake that is made in them.
#include "test/compiler/extract/HostProgram.h"
#include "test/simt/kernels/TableCommand.h"

#include "compiler/extract/Program.h"
#include "ground/plan/FloatConvert.h"

#include <gmock/gmock.h>

#include <fmt/format.h>

#include <cmath>

using namespace lmc;
using namespace lmc::simt;
using plan::DType;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

// How the inputs are changed that a program drew. All programs make valid operands of any integers
// in the range that they drew from.
struct InputPattern {
  enum Integers { Drawn, Least, Largest, Middle, FewSmall } integers = Drawn;
  enum Reals { AnyReals, Halves, Equal } reals = AnyReals; // multiples of 1/2; all -1/2

  void apply(void **arguments) const {
    void *values = *static_cast<void **>(arguments[0]);
    const int type = *static_cast<int *>(arguments[1]); // a host::Type of harness.cu
    const int64_t size = *static_cast<int64_t *>(arguments[2]);
    const int64_t least = static_cast<int64_t *>(arguments[5])[0];
    const int64_t bound = static_cast<int64_t *>(arguments[5])[1], range = bound - least;
    if (type == 4) {
      for (int32_t *x = static_cast<int32_t *>(values), *end = x + size; x < end; ++x)
        *x = int32_t(integers == Least      ? least
                     : integers == Largest  ? bound - 1
                     : integers == Middle   ? least + range / 2
                     : integers == FewSmall ? least + (*x - least) * (*x - least) / range
                                            : *x);
      return;
    }
    const DType dtypes[] = {DType::F32, DType::BF16, DType::F64,    DType::I8,    DType::I32,
                            DType::I32, DType::F16,  DType::F8E4M3, DType::F8E5M2};
    std::vector<double> all(static_cast<size_t>(size));
    convertFloats(dtypes[type], values, DType::F64, all.data(), all.size());
    for (double &x : all)
      x = reals == Equal ? -0.5 : reals == Halves ? std::round(2 * x) / 2 : x;
    convertFloats(DType::F64, all.data(), dtypes[type], values, all.size());
  }
};

// The programs of several cases of one command in one library.
class Programs {
public:
  // Adds the program of a case. Its text up to the tensors is that of all.
  void add(const std::string &text) {
    const size_t own = text.find("static std::vector<host::Array> arrays");
    ASSERT_NE(own, std::string::npos);
    if (count == 0)
      all = text.substr(0, own);
    ASSERT_THAT(text, StartsWith(all.substr(0, own)));
    all += fmt::format("namespace case{0} {{\n{1}\n}}\nextern \"C\" int runCase{0}() {{\n"
                       "  char name[] = \"program\", *arguments[] = {{name, name, nullptr}};\n"
                       "  return case{0}::main(2, arguments);\n}}\n",
                       count++, text.substr(own));
  }

  void open() {
    library = program.open(all);
    ASSERT_TRUE(library);
  }

  // Runs program `number`, with `device` in the place of kernels. Returns what it prints, or "" if
  // it accepts the results.
  std::string run(size_t number, const InputPattern &pattern, std::function<void(void **)> device) {
    runOnDevice = std::move(device);
    changeDrawn = [=](void **arguments) { pattern.apply(arguments); };
    at<void (*)(void **)>("runOnDevice") = [](void **arguments) { runOnDevice(arguments); };
    at<void (*)(void **)>("changeDrawn") = [](void **arguments) { changeDrawn(arguments); };
    auto *main =
        reinterpret_cast<int (*)()>(dlsym(library, fmt::format("runCase{}", number).c_str()));
    testing::internal::CaptureStdout();
    const int code = main();
    const std::string log = testing::internal::GetCapturedStdout();
    return code == 0 ? "" : "exit code " + std::to_string(code) + "\n" + log;
  }

private:
  template <typename T> T &at(const char *name) { return *static_cast<T *>(dlsym(library, name)); }

  static inline std::function<void(void **)> runOnDevice, changeDrawn;
  test::HostProgram program;
  std::string all;
  size_t count = 0;
  void *library = nullptr;
};

// The elements of an operand as f64.
class Elements {
public:
  Elements(DType dtype, std::vector<char> &bytes) : dtype(dtype), bytes(bytes) {}

  size_t size() const { return bytes.size() / byteWidth(dtype); }
  double at(size_t element) const {
    const char *from = bytes.data() + element * byteWidth(dtype);
    double value = 0;
    if (int32_t integer; dtype == DType::I32) {
      std::memcpy(&integer, from, 4);
      value = integer;
    } else {
      convertFloats(dtype, from, DType::F64, &value, 1);
    }
    return value;
  }
  void set(size_t element, double value) {
    char *to = bytes.data() + element * byteWidth(dtype);
    if (const auto integer = int32_t(value); dtype == DType::I32)
      std::memcpy(to, &integer, 4);
    else
      convertFloats(DType::F64, &value, dtype, to, 1);
  }

private:
  DType dtype;
  std::vector<char> &bytes;
};

struct Mistake {
  std::string text;
  std::vector<char> bytes; // of the result with the mistake
};

// Returns mistakes in the result `operand`, which was `before` and is `after` the command.
std::vector<Mistake> mistakesIn(const CommandCase &given, const TableOperand &operand,
                                std::vector<char> before, std::vector<char> after, Draw &draw) {
  const DType dtype = given.dtypeOf(operand);
  const Elements old(dtype, before), right(dtype, after);
  const size_t size = right.size();
  std::vector<Mistake> mistakes;
  auto add = [&](const std::string &text, auto change) {
    Mistake mistake{text, after};
    Elements wrong(dtype, mistake.bytes);
    change(wrong);
    if (mistake.bytes != after)
      mistakes.push_back(std::move(mistake));
  };
  // An element that the command did not write is NaN.
  for (size_t element : {size_t(draw.between(0, int64_t(size) - 1)), size - 1})
    add(fmt::format("element {} changed", element), [&](Elements &wrong) {
      const double x = right.at(element);
      wrong.set(element, std::isnan(x) ? 1 : x + 1 + std::fabs(x));
    });
  const Shape shape = given.shapeOf(operand);
  const size_t columns = shape.size() > 1 ? size_t(shape.back()) : 1;
  size_t row = size / columns - 1; // the last that was written
  while (row > 0 && std::isnan(right.at(row * columns)))
    --row;
  add(fmt::format("row {} not written", row), [&](Elements &wrong) {
    for (size_t element = row * columns; element < (row + 1) * columns; ++element)
      wrong.set(element, old.at(element));
  });
  if (operand.role == "sum" && given.on.count("accumulate"))
    add("first values not added", [&](Elements &wrong) {
      for (size_t element = 0; element < size; ++element)
        wrong.set(element, right.at(element) - old.at(element));
    });
  return mistakes;
}

// These programs launch kernels of their own as only nvcc can: AttentionTest.cpp tests the
// commands.
bool isTestedApart(const TableCommand &command) {
  return command.name == "attention" || command.name == "attention_grad";
}

std::vector<TableCommand> commandsToTest() {
  std::vector<TableCommand> commands = commandTable();
  std::erase_if(commands, isTestedApart);
  return commands;
}

// Shapes that draws rarely meet: of many tiles, of tiles that are not full, and at the limits.
struct Edge {
  const char *command;
  DType type;
  Numbers numbers;
  std::set<std::string> on;
  int sms = 132; // 0: without warpgroups (sm_80)
};

Edge linearEdge(DType type, int64_t rows, int64_t experts, int64_t inner, int64_t columns,
                bool transposed, int sms) {
  return {"expert_linear",
          type,
          {{"rows", rows}, {"experts", experts}, {"inner", inner}, {"columns", columns}},
          transposed ? std::set<std::string>{"transposed"} : std::set<std::string>{},
          sms};
}

Edge gradEdge(DType type, int64_t rows, int64_t experts, int64_t inner, int64_t columns,
              bool accumulate, int sms) {
  Edge edge = linearEdge(type, rows, experts, inner, columns, false, sms);
  edge.command = "expert_linear_grad";
  if (accumulate)
    edge.on = {"accumulate"};
  return edge;
}

// Columns of blocks: with `sms` tensor cores multiply, with 0 threads do.
Edge scaledEdge(DType type, int64_t rows, int64_t experts, int64_t depth, int64_t across,
                const char *layout, int sms) {
  Edge edge{"expert_scaled_linear",
            type,
            {{"rows", rows}, {"experts", experts}, {"depth", depth}, {"across", across}},
            {},
            sms};
  if (*layout)
    edge.on = {layout};
  return edge;
}

// Tiles of tensor cores have 128 rows and columns, those of warpgroups up to 256 columns.
const Edge kEdges[] = {
    linearEdge(DType::BF16, 300, 5, 72, 136, false, 0),
    linearEdge(DType::BF16, 300, 5, 136, 72, true, 0),
    linearEdge(DType::BF16, 129, 3, 32, 8, true, 0),
    linearEdge(DType::BF16, 300, 5, 72, 136, false, 3),
    linearEdge(DType::BF16, 300, 5, 136, 264, true, 1),
    linearEdge(DType::BF16, 129, 3, 456, 8, true, 40),
    linearEdge(DType::BF16, 260, 2, 512, 256, false, 40),
    linearEdge(DType::BF16, 260, 2, 264, 520, true, 3),
    linearEdge(DType::BF16, 3, 70, 16, 16, false, 40),
    linearEdge(DType::BF16, 200, 130, 16, 8, false, 1),
    linearEdge(DType::BF16, 70, 4, 37, 41, false, 132),
    linearEdge(DType::F32, 130, 200, 5, 3, false, 132),
    gradEdge(DType::BF16, 300, 5, 136, 72, true, 0),
    gradEdge(DType::BF16, 129, 3, 32, 8, false, 0),
    gradEdge(DType::BF16, 300, 5, 136, 264, true, 132),
    gradEdge(DType::BF16, 260, 2, 512, 256, false, 132),
    gradEdge(DType::BF16, 3, 70, 16, 16, true, 132),
    gradEdge(DType::F64, 70, 4, 9, 65, true, 132),
    {"route", DType::F32, {{"tokens", 20}, {"count", 1023}, {"chosen", 32}}, {"normalize"}},
    {"route", DType::BF16, {{"tokens", 64}, {"count", 128}, {"chosen", 8}}, {}},
    {"route_grad", DType::F32, {{"tokens", 20}, {"count", 1023}, {"chosen", 32}}, {"normalize"}},
    {"sort_rows",
     DType::F32,
     {{"choices", 616}, {"count", 60}, {"held", 616}, {"groups", 1}, {"first", 0}},
     {}},
    {"transpose", DType::BF16, {{"rows", 272}, {"columns", 260}}, {}},
    {"transpose", DType::F32, {{"rows", 130}, {"columns", 384}}, {}},
    {"quantize_transposed", DType::BF16, {{"rows", 272}, {"columns", 260}}, {}},
    {"quantize_transposed", DType::F32, {{"rows", 129}, {"columns", 144}}, {}},
    {"quantize_rows", DType::BF16, {{"rows", 17}, {"blocks", 3}}, {}},
    {"quantize_columns", DType::BF16, {{"blocks", 2}, {"columns", 260}}, {}},
    {"quantize_columns", DType::F32, {{"blocks", 3}, {"columns", 130}}, {}},
    {"quantize_tiles", DType::BF16, {{"down", 1}, {"across", 5}, {"pitch", 8}}, {}},
    {"quantize_tiles", DType::F32, {{"down", 2}, {"across", 1}, {"pitch", 300}}, {}},
    scaledEdge(DType::BF16, 5, 1, 2, 2, "", 1),
    scaledEdge(DType::BF16, 140, 2, 7, 1, "", 132),
    scaledEdge(DType::BF16, 140, 3, 1, 2, "beside", 132),
    scaledEdge(DType::BF16, 40, 3, 1, 2, "transposed", 132),
    scaledEdge(DType::F32, 40, 2, 2, 1, "", 132),
    scaledEdge(DType::BF16, 40, 2, 2, 2, "beside", 0),
    {"quantize_rows_columns", DType::BF16, {{"down", 2}, {"across", 3}}, {}},
    {"quantize_rows_columns", DType::F32, {{"down", 3}, {"across", 1}}, {}},
    {"swiglu_quantize", DType::BF16, {{"down", 2}, {"across", 3}}, {}},
    {"swiglu_quantize", DType::F32, {{"down", 3}, {"across", 1}}, {}},
    {"swiglu_quantize_rows", DType::BF16, {{"rows", 17}, {"blocks", 3}}, {}},
    {"swiglu_quantize_columns", DType::BF16, {{"down", 2}, {"across", 3}}, {}},
    {"swiglu_quantize_columns", DType::F32, {{"down", 3}, {"across", 1}}, {}},
    {"swiglu_grad_quantize", DType::BF16, {{"down", 2}, {"across", 3}}, {}},
    {"swiglu_grad_quantize", DType::F32, {{"down", 1}, {"across", 2}}, {}},
    {"norm_quantize_rows", DType::BF16, {{"rows", 5}, {"blocks", 17}}, {}},
    {"norm_quantize_rows", DType::F32, {{"rows", 3}, {"blocks", 8}}, {}},
    {"norm_quantize_rows", DType::BF16, {{"rows", 1}, {"blocks", 128}}, {}},
    {"norm_quantize_columns", DType::BF16, {{"down", 2}, {"across", 3}}, {}},
    {"norm_quantize_columns", DType::F32, {{"down", 3}, {"across", 1}}, {}},
    {"quantize_tiles_both",
     DType::BF16,
     {{"down", 5}, {"across", 2}, {"pitch", 3}, {"transposed_pitch", 8}},
     {}},
};

class TableCommands : public testing::TestWithParam<TableCommand> {
protected:
  // A case, with the patterns of its inputs.
  void add(const CommandCase &given, Result<std::unique_ptr<CpuCommand>> opened,
           std::vector<InputPattern> patternsOfCase) {
    ASSERT_TRUE(opened) << given.describe() << ": " << opened.error().message;
    cpu.push_back(std::move(*opened));
    cases.push_back(given);
    patterns.push_back(std::move(patternsOfCase));
    for (const std::string &name : GetParam().switches())
      (given.on.count(name) ? seenOn : seenOff).insert(name);
  }

  // Draws cases that VerifyPlan accepts: first some in which every switch is on and off, then
  // others.
  void drawCases() {
    const std::vector<std::string> switches = GetParam().switches();
    const DType types[] = {DType::BF16, DType::F32, DType::F64};
    const int64_t covering = 4, last = covering + drawCount(6);
    for (int64_t number = 0; number < last; ++number) {
      Draw draw{uint64_t(number + 1)};
      std::set<std::string> on;
      for (size_t i = 0; i < switches.size(); ++i)
        if (number >= covering ? draw.oneIn(2)
                               : number == 1 || (number > 1 && i % 2 == size_t(number % 2)))
          on.insert(switches[i]);
      Result<std::unique_ptr<CpuCommand>> opened = Error{"no case was drawn"};
      CommandCase drawn;
      for (int tries = 0; !opened && tries < 300; ++tries) {
        if (tries % 20 == 19 && !switches.empty()) { // no case has these switches
          const std::string &name = switches[size_t(draw.between(0, int64_t(switches.size()) - 1))];
          if (!on.erase(name))
            on.insert(name);
        }
        drawn = drawCase(GetParam(), on, types[number < covering ? number % 3 : draw.between(0, 2)],
                         draw);
        opened = CpuCommand::open(drawn);
      }
      InputPattern pattern;
      if (number > 0 && draw.oneIn(2))
        pattern.integers = draw.pick({InputPattern::Least, InputPattern::Largest,
                                      InputPattern::Middle, InputPattern::FewSmall});
      if (number > 0 && draw.oneIn(2))
        pattern.reals =
            draw.pick({InputPattern::Halves, InputPattern::Halves, InputPattern::Equal});
      ASSERT_NO_FATAL_FAILURE(add(drawn, std::move(opened), {pattern}));
    }
    for (const std::string &name : switches)
      EXPECT_TRUE(seenOn.count(name) && seenOff.count(name)) << name << " is on or off in no case";
  }

  void addEdges() {
    for (const Edge &edge : kEdges)
      if (edge.command == GetParam().name) {
        CommandCase given{&GetParam(), edge.type, edge.numbers, edge.on};
        given.arch = *codegen::findCudaArch(edge.sms ? "sm_90a" : "sm_80");
        given.arch.chip.sms = edge.sms;
        ASSERT_NO_FATAL_FAILURE(add(given, CpuCommand::open(given),
                                    {{},
                                     {InputPattern::Least},
                                     {InputPattern::Largest},
                                     {InputPattern::FewSmall, InputPattern::Halves}}));
      }
  }

  void buildPrograms() {
    for (const CommandCase &given : cases) {
      auto text = programOf(given);
      ASSERT_TRUE(bool(text)) << llvm::toString(text.takeError());
      ASSERT_NO_FATAL_FAILURE(programs.add(*text));
    }
    ASSERT_NO_FATAL_FAILURE(programs.open());
  }

  // Compiles the CUDA kernels of all cases.
  void compileKernels() {
    std::vector<Source> sources;
    for (const CommandCase &given : cases) {
      simt.push_back(std::make_unique<SimtCommand>(given));
      ASSERT_FALSE(simt.back()->sources().empty()) << given.describe() << " has no CUDA kernels";
      sources.insert(sources.end(), simt.back()->sources().begin(), simt.back()->sources().end());
    }
    std::vector<Result<Kernel>> compiled = compile(sources);
    size_t next = 0;
    for (auto &command : simt) {
      std::vector<Kernel> kernels;
      for (size_t i = 0; i < command->sources().size(); ++i) {
        ASSERT_TRUE(compiled[next]) << compiled[next].error().message;
        kernels.push_back(std::move(*compiled[next++]));
      }
      command->setKernels(std::move(kernels));
    }
  }

  // Runs the program of a case on a device, with a pattern of its inputs. Returns what the program
  // prints of wrong results, or why the device failed.
  std::string runOn(size_t number, const InputPattern &pattern,
                    const std::function<Result<void>(Contents &)> &device) {
    std::string failure;
    const std::string printed = programs.run(number, pattern, [&](void **arguments) {
      const std::vector<TableOperand> operands = cases[number].operands();
      Contents contents;
      auto dataOf = [&](size_t i) { return *static_cast<char **>(arguments[i]); };
      for (size_t i = 0; i < operands.size(); ++i)
        contents[operands[i].name].assign(dataOf(i),
                                          dataOf(i) + cases[number].bytesOf(operands[i]));
      if (auto done = device(contents); !done)
        failure = done.error().message;
      for (size_t i = 0; i < operands.size(); ++i)
        if (operands[i].role != "read")
          std::memcpy(dataOf(i), contents[operands[i].name].data(),
                      contents[operands[i].name].size());
    });
    return failure.empty() ? printed : failure;
  }

  std::vector<CommandCase> cases;
  std::vector<std::vector<InputPattern>> patterns;
  std::set<std::string> seenOn, seenOff;
  std::vector<std::unique_ptr<CpuCommand>> cpu;
  std::vector<std::unique_ptr<SimtCommand>> simt;
  Programs programs;
};

} // namespace

TEST_P(TableCommands, HoldInDrawnShapesAndTheirMistakesAreFound) {
  ASSERT_TRUE(extract::hasText(GetParam().name))
      << "compiler/extract/text/" << GetParam().name << ".cu, which checks the command, is missing";
  setenv("LMC_CHECK_ALL", "1", 1);
  ASSERT_NO_FATAL_FAILURE(drawCases());
  ASSERT_NO_FATAL_FAILURE(addEdges());
  ASSERT_NO_FATAL_FAILURE(buildPrograms());
  ASSERT_NO_FATAL_FAILURE(compileKernels());
  std::vector<double> moved; // of each launch, the largest share of the bytes that its kernel says
  std::set<std::string> mistaken; // results in which mistakes were found
  for (size_t number = 0; number < cases.size(); ++number)
    for (const InputPattern &pattern : patterns[number]) {
      SCOPED_TRACE(fmt::format("case {}: {}, pattern {} {}", number, cases[number].describe(),
                               int(pattern.integers), int(pattern.reals)));
      Contents before, after;
      auto onCpu = [&](Contents &contents) {
        before = contents;
        auto done = cpu[number]->run(contents);
        after = contents;
        return done;
      };
      EXPECT_EQ(runOn(number, pattern, onCpu), "") << "on the CPU";
#ifndef __SANITIZE_THREAD__ // which cannot follow the executor's fibers
      for (size_t way = 0; way < simt[number]->ways(); ++way) {
        auto onSimt = [&](Contents &contents) { return simt[number]->run(contents, way); };
        EXPECT_EQ(runOn(number, pattern, onSimt), "") << "on the SIMT executor, way " << way;
      }
      const std::vector<double> &shares = simt[number]->shares();
      moved.resize(std::max(moved.size(), shares.size()));
      for (size_t launch = 0; launch < shares.size(); ++launch)
        moved[launch] = std::max(moved[launch], shares[launch]);
#endif
      Draw draw{uint64_t(number)};
      for (const TableOperand &operand : cases[number].operands()) {
        if (operand.role == "read" || &pattern != &patterns[number].front())
          continue;
        for (const Mistake &mistake :
             mistakesIn(cases[number], operand, before[operand.name], after[operand.name], draw)) {
          auto wrongly = [&](Contents &contents) {
            contents = after;
            contents[operand.name] = mistake.bytes;
            return Result<void>();
          };
          EXPECT_THAT(runOn(number, pattern, wrongly), HasSubstr("  " + operand.name + "["))
              << operand.name << ": " << mistake.text;
          mistaken.insert(operand.name);
        }
      }
    }
  for (const TableOperand &operand : GetParam().operands)
    EXPECT_EQ(mistaken.count(operand.name), operand.role != "read") << operand.name;
  for (double share : moved)
    EXPECT_GT(share, GetParam().name == "scatter_add" ? -1 : 0.9)
        << "a kernel moves in no case what it says";
}

INSTANTIATE_TEST_SUITE_P(Table, TableCommands, testing::ValuesIn(commandsToTest()),
                         [](const auto &info) { return info.param.name; });
