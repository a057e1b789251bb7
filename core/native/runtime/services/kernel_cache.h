// Compiled kernels on the user's disk, so that a second process compiles nothing: for every card, in C and in Python.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace ts {

// $TESSERACK_KERNEL_CACHE; by default tesserack/kernels in the user's cache folder; "": nothing is kept.
std::string kernel_cache_folder();
// The file that belongs to a key, which says all that its contents depend on.
std::string kernel_cache_name(std::string_view key);
// What is kept; nothing where it cannot be read or is not whole.
std::optional<std::string> read_kept_kernel(const std::string& folder, const std::string& name);
// Other processes see the whole file or none. False where the folder cannot be written: no error, it is compiled again.
bool keep_kernel(const std::string& folder, const std::string& name, std::string_view data);

// Slots of ts_host.
int cache_get_hook(const void* key, size_t key_bytes, void* out, size_t* bytes);
int cache_put_hook(const void* key, size_t key_bytes, const void* data, size_t bytes);

} // namespace ts
