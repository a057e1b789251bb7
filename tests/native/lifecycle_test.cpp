// Default devices per thread, current indices, and looking at libraries before opening them.
#include "harness.h"
#include "runtime/default_device.h"
#include "runtime/plugin.h"
#include "toy_backend.h"
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <thread>
#include <unistd.h>

using namespace ts;

TEST(contexts_nest_and_belong_to_a_thread) {
  Device toy = toy_device(), other = parse_device("toy:1"), meta = parse_device("meta");
  set_default_device(toy);
  CHECK(default_device() == toy);
  enter_device(meta);
  enter_device(other);
  CHECK(default_device() == other);
  std::thread([&] { CHECK(default_device() == toy); }).join();
  CHECK(leave_device(meta)); // not the innermost one
  CHECK(default_device() == other);
  CHECK(!leave_device(meta));
  CHECK(leave_device(other));
  CHECK(default_device() == toy);
  set_default_device(Device());
}

TEST(the_chooser_is_asked_once_and_again_when_forgotten) {
  Device toy = toy_device();
  int asked = 0;
  set_default_device(Device());
  set_default_chooser([&] {
    ++asked;
    return toy;
  });
  CHECK(default_device() == toy && default_device() == toy && asked == 1);
  forget_chosen_device();
  CHECK(default_device() == toy && asked == 2);
  set_default_device(parse_device("toy:1"));
  forget_chosen_device(); // what was set stays
  CHECK(default_device().index == 1 && asked == 2);
  set_default_device(Device());
  set_default_chooser(nullptr);
}

TEST(bare_names_mean_the_current_index) {
  Device toy = toy_device();
  set_current_index(toy.backend, 1);
  CHECK(parse_device("toy").index == 1 && parse_device("toy:0").index == 0);
  std::thread([] { CHECK(parse_device("toy").index == 0); }).join();
  set_current_index(toy.backend, 0);
}

TEST(kernels_have_known_names) {
  auto names = kernel_names();
  for (const char* required : required_kernels()) CHECK(std::find(names.begin(), names.end(), required) != names.end());
  CHECK(std::is_sorted(names.begin(), names.end()));
}

TEST(a_backend_with_devices_is_not_probed_again) {
  Backend& toy = backend_of(toy_device());
  CHECK(&probe_again("toy") == &toy);
  CHECK_ERROR(probe_again("nosuch"), "nosuch");
}

TEST(files_are_checked_before_they_are_opened) {
  const std::string self = "/proc/self/exe", path = "/tmp/tesserack-lifecycle-" + std::to_string(getpid());
  std::ifstream in(self, std::ios::binary);
  std::string whole((std::istreambuf_iterator<char>(in)), {});
  auto write = [&](const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; };
  write(whole);
  check_library_file(path);
  for (size_t part : {size_t{0}, size_t{3}, size_t{40}, whole.size() / 2, whole.size() - 1}) {
    write(whole.substr(0, part));
    CHECK_ERROR(check_library_file(path), "cannot open");
  }
  write("#!/bin/sh\n");
  CHECK_ERROR(check_library_file(path), "no shared library");
  CHECK_ERROR(check_library_file("/"), "it is no file");
  CHECK_ERROR(check_library_file("/nonexistent/lib.so"), "No such file");
  check_library_file("libm.so.6"); // without a folder: the linker searches
  std::remove(path.c_str());
}
