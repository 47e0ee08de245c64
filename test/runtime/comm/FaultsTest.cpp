// What ranks do when another one dies, hangs, or was started wrongly: processes that run
// test/runtime/comm/RankLoop.cpp. Times are short here; DefaultTimes holds the real ones.
#include "runtime/comm/rendezvous/Rendezvous.h"
#include "runtime/comm/rendezvous/RendezvousProtocol.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace lmc;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

namespace {

using Clock = std::chrono::steady_clock;
constexpr double kSilence = 1.5; // of the ranks here, seconds

// For tests in which not all ranks come.
constexpr const char *kShortJoin = "--join=1500";

std::string contents(const std::string &path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Processes that are ranks. Those that still run at the end are killed.
class Ranks {
public:
  struct Setting {
    std::vector<std::string> arguments;
    std::map<std::string, std::string> environment; // replaces what is set for every rank
    std::vector<std::string> before;                // a program that runs the rank
  };
  struct End {
    int code;         // 128 + its number for a signal
    double seconds;   // since the clock was started
    std::string text; // stderr
  };

  explicit Ranks(int size) : processes(static_cast<size_t>(size), -1) {
    const Result<int> free = freePort();
    EXPECT_TRUE(free);
    port = *free;
    static int count = 0;
    files = fmt::format("{}lmc-ranks-{}-{}", testing::TempDir(), getpid(), count++);
  }
  ~Ranks() {
    for (size_t rank = 0; rank < processes.size(); ++rank) {
      if (processes[rank] > 0) {
        ::kill(processes[rank], SIGKILL);
        ::waitpid(processes[rank], nullptr, 0);
      }
      ::unlink(file(rank, "out").c_str());
      ::unlink(file(rank, "err").c_str());
    }
    ::unlink((files + ".secret").c_str());
  }

  void startAll(const Setting &setting = {}) {
    for (size_t rank = 0; rank < processes.size(); ++rank)
      start(rank, setting);
  }

  void start(size_t rank, const Setting &setting = {}) {
    std::vector<std::string> words = setting.before;
    words.insert(words.end(), {LMC_RANK_LOOP, "--join=10000", "--beat=200", "--grace=1000",
                               fmt::format("--silence={}", kSilence * 1000)});
    words.insert(words.end(), setting.arguments.begin(), setting.arguments.end());
    std::map<std::string, std::string> environment = {
        {"RANK", std::to_string(rank)},
        {"WORLD_SIZE", std::to_string(processes.size())},
        {"LOCAL_RANK", std::to_string(rank)},
        {"MASTER_ADDR", "127.0.0.1"},
        {"LMC_PORT", std::to_string(port)}};
    for (const auto &[name, value] : setting.environment)
      environment[name] = value;
    const pid_t process = fork();
    if (process == 0) {
      for (const auto &[name, value] : environment)
        setenv(name.c_str(), value.c_str(), 1);
      dup2(open(file(rank, "out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
      dup2(open(file(rank, "err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
      std::vector<char *> arguments;
      for (std::string &word : words)
        arguments.push_back(word.data());
      arguments.push_back(nullptr);
      execvp(arguments[0], arguments.data());
      _exit(127);
    }
    processes[rank] = process;
  }

  // Waits until all ranks have formed a sum together.
  void awaitReady() const {
    const auto limit = Clock::now() + std::chrono::seconds(20);
    for (size_t rank = 0; rank < processes.size(); ++rank)
      while (contents(file(rank, "out")).find("ready") == std::string::npos) {
        ASSERT_LT(Clock::now(), limit) << "rank " << rank << ": " << contents(file(rank, "err"));
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
  }

  void signal(size_t rank, int number) {
    began = Clock::now();
    ASSERT_EQ(::kill(processes[rank], number), 0);
  }
  void startClock() { began = Clock::now(); }

  // Waits until a rank has ended. One that goes on for 30 s is killed.
  End end(size_t rank) {
    int status = 0;
    const auto limit = Clock::now() + std::chrono::seconds(30);
    while (waitpid(processes[rank], &status, WNOHANG) == 0) {
      if (Clock::now() > limit)
        ::kill(processes[rank], SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    processes[rank] = -1;
    const std::chrono::duration<double> time = Clock::now() - began;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), time.count(),
            contents(file(rank, "err"))};
  }

  pid_t process(size_t rank) const { return processes[rank]; }

  // A file with a secret that is `text`.
  std::string secret(const std::string &text) const {
    std::ofstream(files + ".secret") << text << '\n';
    return "--secret-file=" + files + ".secret";
  }

  int port = 0;

private:
  std::string file(size_t rank, const char *kind) const {
    return fmt::format("{}-{}.{}", files, rank, kind);
  }

  std::string files; // how the names of all files begin
  std::vector<pid_t> processes;
  Clock::time_point began = Clock::now();
};

TEST(Faults, DefaultTimes) {
  const RendezvousOptions options;
  EXPECT_LE(options.silence + options.beat, std::chrono::seconds(10));
  EXPECT_LE(options.join, std::chrono::seconds(30));
  EXPECT_GE(options.silence, 5 * options.beat); // a few beats may be late
}

TEST(Faults, WithoutAFaultAllRanksEndWell) {
  Ranks ranks(4);
  ranks.startAll({{"--steps=20", "--shard=2"}, {}, {}});
  for (size_t rank = 0; rank < 4; ++rank) {
    const Ranks::End end = ranks.end(rank);
    EXPECT_EQ(end.code, 0) << end.text;
    EXPECT_EQ(end.text, "");
  }
}

TEST(Faults, AKilledRankIsNamedOnAllOthersWithin5Seconds) {
  for (size_t victim : {0, 2}) {
    Ranks ranks(3);
    ranks.startAll();
    ranks.awaitReady();
    ranks.signal(victim, SIGKILL);
    for (size_t rank = 0; rank < 3; ++rank) {
      const Ranks::End end = ranks.end(rank);
      if (rank == victim)
        continue;
      EXPECT_EQ(end.code, 5);
      EXPECT_LT(end.seconds, 5);
      EXPECT_THAT(end.text, AllOf(HasSubstr(fmt::format("error: rank {} (host ", victim)),
                                  HasSubstr(") has ended; start the run again to go on from its "
                                            "last checkpoint\n")));
    }
  }
}

TEST(Faults, AStoppedRankIsNamedOnAllOthers) {
  for (size_t victim : {0, 1}) {
    Ranks ranks(3);
    ranks.startAll();
    ranks.awaitReady();
    ranks.signal(victim, SIGSTOP);
    for (size_t rank = 0; rank < 3; ++rank) {
      if (rank == victim)
        continue;
      const Ranks::End end = ranks.end(rank);
      EXPECT_EQ(end.code, 5);
      EXPECT_LT(end.seconds, kSilence + 2);
      EXPECT_THAT(end.text, AllOf(HasSubstr(fmt::format("error: rank {} (host ", victim)),
                                  HasSubstr(") has not answered for 1.5 s")));
    }
    ranks.signal(victim, SIGCONT);
    const Ranks::End end = ranks.end(victim);
    EXPECT_EQ(end.code, 5) << end.text;
    EXPECT_LT(end.seconds, 5);
  }
}

// The others are in the middle of sending to it: 10 MB are more than the system's buffers take.
TEST(Faults, ARankThatLeavesWhileOthersSendToItIsNamed) {
  Ranks ranks(3);
  for (size_t rank : {0, 1})
    ranks.start(rank, {{"--elements=4000000"}, {}, {}});
  ranks.start(2, {{"--elements=4000000", "--steps=1"}, {}, {}});
  EXPECT_EQ(ranks.end(2).code, 0);
  ranks.startClock();
  for (size_t rank : {0, 1}) {
    const Ranks::End end = ranks.end(rank);
    EXPECT_EQ(end.code, 5);
    EXPECT_LT(end.seconds, kSilence + 2);
    EXPECT_THAT(end.text, testing::ContainsRegex("error: rank 2 \\(host .*\\) has ended"));
  }
}

TEST(Faults, ARankWhoseMainThreadIsStuckEndsToo) {
  Ranks ranks(3);
  ranks.start(0);
  ranks.start(1);
  ranks.start(2, {{"--stuck"}, {}, {}});
  ranks.awaitReady();
  ranks.signal(1, SIGKILL);
  const Ranks::End end = ranks.end(2);
  EXPECT_EQ(end.code, 5);
  EXPECT_LT(end.seconds, 5);
  EXPECT_THAT(end.text, HasSubstr("lmc-run: error: rank 1 (host "));
}

// Its process gives signs of life all the time.
TEST(Faults, ARankWhoseMainThreadHangsIsNamedOnAllOthers) {
  for (size_t victim : {0, 2}) {
    Ranks ranks(3);
    ranks.startClock();
    for (size_t rank = 0; rank < 3; ++rank)
      ranks.start(rank, {{"--stall=1500", rank == victim ? "--hang=5" : "--hang=0"}, {}, {}});
    for (size_t rank = 0; rank < 3; ++rank) {
      const Ranks::End end = ranks.end(rank);
      EXPECT_EQ(end.code, 5);
      EXPECT_LT(end.seconds, 8);
      EXPECT_THAT(end.text,
                  testing::ContainsRegex(fmt::format(
                      "error: rank {} \\(host .*\\) has made no progress for [123] s \\(reading "
                      "data, step 5\\), and the others wait for it; start the run again",
                      victim)));
    }
  }
}

// The others wait in their first collective, before they have entered anything.
TEST(Faults, ARankThatHangsBeforeItsFirstStepIsNamedOnAllOthers) {
  Ranks ranks(3);
  ranks.startClock();
  for (size_t rank = 0; rank < 3; ++rank)
    ranks.start(rank,
                {{"--other-stall=1500", rank == 1 ? "--hang-at-start" : "--steps=0"}, {}, {}});
  for (size_t rank = 0; rank < 3; ++rank) {
    const Ranks::End end = ranks.end(rank);
    EXPECT_EQ(end.code, 5);
    EXPECT_LT(end.seconds, 8);
    EXPECT_THAT(end.text, testing::ContainsRegex(
                              "error: rank 1 \\(host .*\\) has made no progress for [123] s "
                              "\\(starting\\), and the others wait for it; start the run again"));
  }
}

TEST(Faults, ALongSaveAndASlowTerminalAreNoHang) {
  Ranks ranks(3);
  for (size_t rank = 0; rank < 3; ++rank)
    ranks.start(rank, {{"--stall=400", "--steps=6", rank == 1 ? "--save=1500" : "--save=0",
                        rank == 0 ? "--log=1500" : "--log=0"},
                       {},
                       {}});
  for (size_t rank = 0; rank < 3; ++rank) {
    const Ranks::End end = ranks.end(rank);
    EXPECT_EQ(end.code, 0) << end.text;
    EXPECT_EQ(end.text, "");
  }
}

// As a scheduler suspends a job. In each step, the others wait for rank 1.
TEST(Faults, ATimeInWhichAllRanksAreStoppedIsNoHang) {
  Ranks ranks(3);
  for (size_t rank = 0; rank < 3; ++rank)
    ranks.start(rank,
                {{"--stall=1000", "--steps=7", rank == 1 ? "--pause=400" : "--pause=0"}, {}, {}});
  ranks.awaitReady();
  std::this_thread::sleep_for(std::chrono::milliseconds(1400)); // a step has been timed
  for (int number : {SIGSTOP, SIGCONT}) {
    for (size_t rank = 0; rank < 3; ++rank)
      ranks.signal(rank, number);
    if (number == SIGSTOP)
      std::this_thread::sleep_for(std::chrono::milliseconds(2200));
  }
  for (size_t rank = 0; rank < 3; ++rank) {
    const Ranks::End end = ranks.end(rank);
    EXPECT_EQ(end.code, 0) << end.text;
    EXPECT_EQ(end.text, "");
  }
}

TEST(Faults, ADebuggerMayStopARankForTheTimeOfAHang) {
  Ranks ranks(2);
  ranks.startAll({{"--hang-timeout=6", "--steps=4", "--pause=200"}, {}, {}});
  ranks.awaitReady();
  ranks.signal(1, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(2200)); // longer than kSilence
  ranks.signal(1, SIGCONT);
  for (size_t rank : {0, 1}) {
    const Ranks::End end = ranks.end(rank);
    EXPECT_EQ(end.code, 0) << end.text;
  }
}

TEST(Faults, ARankThatDoesNotComeIsNamed) {
  Ranks ranks(4);
  for (size_t rank : {0, 2})
    ranks.start(rank, {{kShortJoin}, {}, {}});
  for (size_t rank : {0, 2}) {
    const Ranks::End end = ranks.end(rank);
    EXPECT_EQ(end.code, 5);
    EXPECT_LT(end.seconds, 1.5 + 2);
    EXPECT_THAT(end.text, HasSubstr(fmt::format("error: ranks 1, 3 of 4 did not join rank 0 at "
                                                "127.0.0.1 port {} within 1.5 s",
                                                ranks.port)));
  }
}

TEST(Faults, ARankWithAnotherSecretIsNotLetIn) {
  Ranks ranks(2);
  ranks.start(0, {{ranks.secret("a"), kShortJoin}, {}, {}});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ranks.start(1, {{ranks.secret("b")}, {}, {}});
  Ranks::End end = ranks.end(1);
  EXPECT_EQ(end.code, 2);
  EXPECT_THAT(end.text, AllOf(HasSubstr("does not know the secret of rank 0 at 127.0.0.1"),
                              HasSubstr("give all ranks the same --secret-file")));
  end = ranks.end(0);
  EXPECT_EQ(end.code, 5);
  EXPECT_THAT(end.text, AllOf(HasSubstr("rank 1 of 2 did not join"), HasSubstr("refused: rank 1")));
}

TEST(Faults, ARankWithoutTheSecretIsNotLetIn) {
  Ranks ranks(2);
  ranks.start(0, {{ranks.secret("a")}, {}, {}});
  ranks.start(1);
  EXPECT_THAT(ranks.end(1).text, HasSubstr("does not know the secret of rank 0"));
}

TEST(Faults, ARankZeroWithoutTheSecretIsNotTrusted) {
  Ranks ranks(2);
  ranks.start(0);
  ranks.start(1, {{ranks.secret("a")}, {}, {}});
  const Ranks::End end = ranks.end(1);
  EXPECT_EQ(end.code, 2);
  EXPECT_THAT(end.text, HasSubstr("does not know the secret of "));
}

TEST(Faults, RanksThatKnowTheSecretWork) {
  Ranks ranks(2);
  ranks.startAll({{ranks.secret("a"), "--steps=2"}, {}, {}});
  for (size_t rank : {0, 1})
    EXPECT_EQ(ranks.end(rank).code, 0);
}

TEST(Faults, ATakenPortIsReported) {
  Ranks ranks(2);
  const auto other = Socket::listenAt("127.0.0.1", ranks.port);
  ASSERT_TRUE(other);
  ranks.startAll({{kShortJoin}, {}, {}});
  Ranks::End end = ranks.end(0);
  EXPECT_EQ(end.code, 2);
  EXPECT_THAT(end.text, HasSubstr(fmt::format("error: port {} of 127.0.0.1 is taken by another "
                                              "process",
                                              ranks.port)));
  end = ranks.end(1);
  EXPECT_EQ(end.code, 2);
  EXPECT_LT(end.seconds, 4);
  EXPECT_THAT(end.text,
              HasSubstr(fmt::format("error: what listens at 127.0.0.1 port {} is not rank "
                                    "0 of this run",
                                    ranks.port)));
}

TEST(Faults, AWrongAddressIsReported) {
  Ranks ranks(2);
  ranks.startAll({{kShortJoin}, {{"MASTER_ADDR", "192.0.2.1"}}, {}}); // RFC 5737: nobody's
  Ranks::End end = ranks.end(0);
  EXPECT_EQ(end.code, 2);
  EXPECT_THAT(end.text, HasSubstr("error: rank 0 runs on this machine, which does not have the "
                                  "address 192.0.2.1"));
  end = ranks.end(1);
  EXPECT_EQ(end.code, 5);
  EXPECT_LT(end.seconds, 1.5 + 4);
  EXPECT_THAT(end.text, HasSubstr("error: rank 1 has not reached rank 0 at 192.0.2.1 port"));
}

TEST(Faults, AnUnknownNameIsReported) {
  Ranks ranks(2);
  ranks.start(1, {{"--join=500"}, {{"MASTER_ADDR", "no-such-host.invalid"}}, {}});
  EXPECT_THAT(ranks.end(1).text, HasSubstr("error: rank 1 has not reached rank 0 at "
                                           "no-such-host.invalid port"));
}

TEST(Faults, AnUnknownInterfaceIsReported) {
  Ranks ranks(2);
  ranks.start(0, {{"--interface=nope7"}, {}, {}});
  const Ranks::End end = ranks.end(0);
  EXPECT_EQ(end.code, 2);
  EXPECT_THAT(end.text, AllOf(HasSubstr("error: --interface=nope7: this machine has "),
                              HasSubstr("lo (127.0.0.1)")));
}

// Rank 0 is told that it is at 127.0.0.2, and its interface has 127.0.0.1, where rank 1 looks for
// it.
TEST(Faults, RankZeroIsBoundToTheInterfaceAskedFor) {
  Ranks ranks(2);
  ranks.start(0, {{"--interface=lo", "--steps=2"}, {{"MASTER_ADDR", "127.0.0.2"}}, {}});
  ranks.start(1, {{"--interface=lo", "--steps=2"}, {}, {}});
  for (size_t rank : {0, 1}) {
    const Ranks::End end = ranks.end(rank);
    EXPECT_EQ(end.code, 0) << end.text;
  }
}

// Returns the addresses of this side's ends of the TCP connections that a process can see.
std::set<std::string> addressesOfConnections(pid_t process) {
  std::set<std::string> addresses;
  std::ifstream table(fmt::format("/proc/{}/net/tcp", process));
  std::string line, number, own, other, state;
  std::getline(table, line); // the header
  while (std::getline(table, line)) {
    std::istringstream(line) >> number >> own >> other >> state;
    const auto address = static_cast<uint32_t>(std::stoul(own.substr(0, 8), nullptr, 16));
    if (state == "01") // established
      addresses.insert(fmt::format("{}.{}.{}.{}", address & 255, address >> 8 & 255,
                                   address >> 16 & 255, address >> 24));
  }
  return addresses;
}

// Without the option, the system takes the address of rank 0 for both ends of a connection on one
// machine.
TEST(Faults, AllTrafficIsBoundToTheInterfaceAskedFor) {
  const std::string space = fmt::format("lmc{}i", getpid());
  auto run = [](const std::string &command) {
    return std::system((command + " 2>/dev/null").c_str()) == 0;
  };
  if (!run("ip netns add " + space))
    GTEST_SKIP() << "no network namespaces (ip netns add, as root)";
  EXPECT_TRUE(
      run(fmt::format("ip -n {0} link set lo up && ip -n {0} addr add 10.79.0.1/32 dev lo && "
                      "ip -n {0} addr add 10.79.0.2/32 dev lo",
                      space)));
  {
    Ranks ranks(2);
    for (size_t rank : {0, 1})
      ranks.start(rank, {{fmt::format("--interface=10.79.0.{}", rank + 1), "--pause=10"},
                         {{"MASTER_ADDR", "10.79.0.1"}},
                         {"ip", "netns", "exec", space}});
    ranks.awaitReady();
    EXPECT_THAT(addressesOfConnections(ranks.process(0)),
                testing::ElementsAre("10.79.0.1", "10.79.0.2"));
  }
  run("ip netns del " + space);
}

TEST(Faults, ARankNumberThatIsUsedTwiceIsReported) {
  Ranks ranks(3);
  ranks.start(0, {{kShortJoin}, {}, {}});
  ranks.start(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ranks.start(2, {{}, {{"RANK", "1"}}, {}});
  Ranks::End end = ranks.end(2);
  EXPECT_EQ(end.code, 2);
  EXPECT_THAT(end.text, HasSubstr("error: two processes are started as rank 1, on hosts "));
  EXPECT_THAT(ranks.end(0).text, HasSubstr("rank 2 of 3 did not join"));
}

TEST(Faults, AnotherNumberOfRanksIsReported) {
  Ranks ranks(2);
  ranks.start(0);
  ranks.start(1, {{}, {{"WORLD_SIZE", "4"}}, {}});
  const Ranks::End end = ranks.end(1);
  EXPECT_EQ(end.code, 2);
  EXPECT_THAT(end.text, HasSubstr("was started as one of 4 ranks, and rank 0 at 127.0.0.1"));
}

TEST(Faults, ARankThatComesTooLateIsReported) {
  Ranks ranks(3), late(1);
  late.port = ranks.port;
  ranks.startAll();
  ranks.awaitReady();
  late.start(0, {{}, {{"RANK", "1"}, {"WORLD_SIZE", "3"}}, {}});
  EXPECT_THAT(late.end(0).text, HasSubstr("comes too late, because rank 0 at 127.0.0.1"));
}

// Strangers connect and say nothing, or nonsense, or promise a gigabyte.
TEST(Faults, AStrangerDoesNotDisturb) {
  Ranks ranks(2);
  ranks.start(0, {{"--steps=3"}, {}, {}});
  std::vector<Socket> strangers;
  for (int i = 0; i < 20; ++i) {
    auto socket =
        Socket::connectTo("127.0.0.1", ranks.port, "", Clock::now() + std::chrono::seconds(10));
    ASSERT_TRUE(socket);
    if (i % 4 == 1)
      socket->send({{"lmc", "x"}, {"rank", -5}});
    if (i % 4 == 2)
      socket->send({{"lmc", kRendezvousProtocol},
                    {"rank", 1},
                    {"size", 2},
                    {"host", std::string(100000, 'x')}});
    if (i % 4 == 3)
      socket->finishSending();
    strangers.push_back(std::move(*socket));
  }
  ranks.start(1, {{"--steps=3"}, {}, {}});
  for (size_t rank : {0, 1}) {
    const Ranks::End end = ranks.end(rank);
    EXPECT_EQ(end.code, 0) << end.text;
  }
}

TEST(Faults, ManyStrangersTakeNeitherThreadsNorMemory) {
  auto statusOf = [](pid_t process, const std::string &key) {
    std::istringstream status(contents(fmt::format("/proc/{}/status", process)));
    for (std::string line; std::getline(status, line);)
      if (line.starts_with(key + ":"))
        return std::stol(line.substr(key.size() + 1));
    return 0L;
  };
  Ranks ranks(2);
  ranks.start(0, {{"--steps=3"}, {{"MALLOC_ARENA_MAX", "1"}}, {}}); // else 64 MiB for each thread
  auto connect = [&] {
    return Socket::connectTo("127.0.0.1", ranks.port, "", Clock::now() + std::chrono::seconds(10));
  };
  // Those that leave at once. A thread that is not joined keeps the 8 MiB of its stack.
  ASSERT_TRUE(connect());
  const long before = statusOf(ranks.process(0), "VmSize");
  for (int i = 0; i < 200; ++i)
    ASSERT_TRUE(connect());
  // On a busy machine the last of them are noticed a moment later.
  auto grown = [&] { return statusOf(ranks.process(0), "VmSize") - before; }; // KiB
  const auto giveUp = Clock::now() + std::chrono::seconds(10);
  while (grown() >= 800 << 10 && Clock::now() < giveUp)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_LT(grown(), 800 << 10);
  // Those that stay, and say nothing.
  std::vector<Socket> strangers;
  for (int i = 0; i < 200; ++i) {
    auto socket = connect();
    ASSERT_TRUE(socket);
    strangers.push_back(std::move(*socket));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(statusOf(ranks.process(0), "Threads"), 100);
  strangers.clear();
  ranks.start(1, {{"--steps=3"}, {}, {}});
  for (size_t rank : {0, 1}) {
    const Ranks::End end = ranks.end(rank);
    EXPECT_EQ(end.code, 0) << end.text;
  }
}

// Two network namespaces that are joined by a link, which goes down.
TEST(Faults, ACutLinkIsNoticedOnBothSides) {
  const std::string a = fmt::format("lmc{}a", getpid()), b = fmt::format("lmc{}b", getpid());
  auto run = [](const std::string &command) {
    return std::system((command + " 2>/dev/null").c_str()) == 0;
  };
  if (!run(fmt::format(
          "ip netns add {0} && ip netns add {1} && ip -n {0} link add v0 type veth peer "
          "name v0 netns {1}",
          a, b))) {
    run(fmt::format("ip netns del {}; ip netns del {}", a, b));
    GTEST_SKIP() << "no network namespaces (ip netns add, as root)";
  }
  for (const auto &[space, address] : {std::pair(a, "10.77.0.1/24"), std::pair(b, "10.77.0.2/24")})
    EXPECT_TRUE(run(fmt::format("ip -n {0} addr add {1} dev v0 && ip -n {0} link set v0 up && "
                                "ip -n {0} link set lo up",
                                space, address)));
  {
    Ranks ranks(4);
    for (size_t rank = 0; rank < 4; ++rank)
      ranks.start(rank, {{"--shard=2"},
                         {{"MASTER_ADDR", "10.77.0.1"}},
                         {"ip", "netns", "exec", rank < 2 ? a : b}});
    ranks.awaitReady();
    ranks.startClock();
    EXPECT_TRUE(run(fmt::format("ip -n {} link set v0 down", a)));
    for (size_t rank = 0; rank < 4; ++rank) {
      const Ranks::End end = ranks.end(rank);
      EXPECT_EQ(end.code, 5) << end.text;
      EXPECT_LT(end.seconds, kSilence + 3);
      // Each side names one of the other.
      EXPECT_THAT(end.text,
                  testing::ContainsRegex(rank < 2 ? "rank [23] \\(host .*\\) has not answered"
                                                  : "rank 0 \\(host .*\\) has not answered"));
    }
  }
  run(fmt::format("ip netns del {}; ip netns del {}", a, b));
}

} // namespace
