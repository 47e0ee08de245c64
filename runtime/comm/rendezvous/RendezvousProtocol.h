// The messages between a rank and rank 0 over the control connection.
//
// When a rank has connected (H: rank 0's hub, R: the rank):
//   H  {lmc: kRendezvousProtocol, nonce}
//   R  {lmc: kRendezvousProtocol, nonce, rank, size, host, proof}
//   H  {proof}, or {refused: TEXT} and the connection is closed
// A nonce is a random text. A proof shows that its sender knows the run's secret: it is an HMAC of
// both nonces and R's rank, size and host, with the secret as key. Without a secret, proofs are "".
//
// From then on each message has a key "is":
//   R     beat {...}               the process lives; what its main thread does (Progress::State)
//   H     beat                     rank 0's process lives
//   H     start {hosts}            all ranks have joined; `hosts`: the host of each rank
//   both  failed {text}            the run cannot go on; the hub sends the first text to all ranks
//   H     left {rank}              a rank has left the run
//   R     leave                    this rank leaves the run, and sends nothing more
//   R     set {key, value}         stores bytes
//   R     get {key}                asks for the bytes of a key
//   H     value {key, value}       the answer, as soon as the bytes are set
#pragma once

#include "ground/support/Sha256.h"
#include "runtime/comm/Progress.h"

#include <nlohmann/json.hpp>

#include <string>

namespace lmc {

constexpr int kRendezvousProtocol = 4;

// The maximum bytes of a message: kGreetingBytes until the proofs are checked, then kMessageBytes.
constexpr size_t kGreetingBytes = 4096, kMessageBytes = size_t{1} << 20;

enum class Side { Hub, Rank };

inline std::string rendezvousProof(const std::string &secret, Side side,
                                   const std::string &hubNonce, const nlohmann::json &hello) {
  if (secret.empty())
    return "";
  const nlohmann::json said = {side == Side::Hub ? "hub" : "rank",
                               hubNonce,
                               hello.at("nonce"),
                               hello.at("rank"),
                               hello.at("size"),
                               hello.at("host")};
  return hmacSha256(secret, said.dump());
}

// Calls visit(key, member) for each member of a rank's progress.
template <typename State, typename Visit> void visitMembers(State &state, Visit visit) {
  visit("activity", state.activity);
  visit("step", state.step);
  visit("moves", state.moves);
  visit("waits", state.waits);
  visit("step_seconds", state.stepSeconds);
  visit("busy_seconds", state.busySeconds);
  visit("windows", state.windows);
  visit("what", state.what);
  visit("waits_for", state.waitsFor);
  visit("file", state.file);
}

inline nlohmann::json beatOf(const Progress::State &state) {
  nlohmann::json beat = {{"is", "beat"}};
  visitMembers(state, [&](const char *key, const auto &member) { beat[key] = member; });
  return beat;
}

inline Progress::State progressOf(const nlohmann::json &beat) {
  Progress::State state;
  visitMembers(state, [&](const char *key, auto &member) { beat.at(key).get_to(member); });
  return state;
}

} // namespace lmc
