// The end of each extracted program: it reports whether the results are right, and prints times.

// For Task::Bench, also prints measured and predicted times: of all launches together and, if there
// are several, of each launch. For Task::Hold, repeats all launches for 4 seconds and prints the
// mean time of a repetition.
int main(int argc, char **argv) {
  host::Difference difference;
  check(difference);
  const host::Task task = host::taskOf(argc, argv);
  const int code = difference.report();
  if (task == host::Task::Hold)
    std::printf("held: %.4f ms\n", host::millisecondsHeld(4, launchAll));
  if (task != host::Task::Bench)
    return code;
  double predicted = 0;
  for (double seconds : launchPredictions)
    predicted += seconds;
  host::bench("bench:", predicted, kBytes, kFlops, launchAll);
  for (size_t i = 0; kLaunches > 1 && i < kLaunches; ++i)
    host::bench((std::string("  ") + launchNames[i]).c_str(), launchPredictions[i], 0, 0,
                [&] { launch(i); });
  return code;
}
