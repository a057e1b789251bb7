// Opening native plugins, and what one may ask about a backend before relying on it.
#pragma once
#include "runtime/backend.h"
#include <span>

namespace ts {

// Like load_backend(path), but registers nothing unless the library calls itself `name`; `owner`, such as
// "acme-pkg 1.5", stands in messages. RuntimeError with the cause; the library is closed again.
Backend& load_plugin(const std::string& path, const std::string& name, const std::string& owner);

// RuntimeError unless a table speaks this core's ABI and fills the required slots; `source` stands in the message.
void check_backend_table(const ts_backend* table, const std::string& source);

// The same of the tables that belong to it: recorded launches, communicators, graph compilers.
void check_extensions(const ts_backend& table, const std::string& source);

// RuntimeError unless a table of `size` bytes says its version, and this core speaks it.
void check_abi(const std::string& source, size_t size, size_t least, int major, int minor_needed);

// RuntimeError unless dlopen can map the file: it would end the process with SIGBUS on one that is cut short. `what`
// begins the message.
void check_library_file(const std::string& path, const char* what = "backend");

// Opens a library of dispatch keys and operators and has it set itself up; it stays open. RuntimeError with the cause.
// What was registered before its setup failed stays.
void load_library(const std::string& path);
// Who is registering: the name of the library that this thread is setting up, or "".
const std::string& library_in_setup();

// Asks a backend without devices again whether it has any, for example after its driver was installed.
Backend& probe_again(const std::string& name);

// Names of all kernels that operators ask backends for, sorted, and of those every backend must have.
std::vector<std::string> kernel_names();
std::span<const char* const> required_kernels();

} // namespace ts
