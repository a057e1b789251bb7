// A look at a shared library's headers before the dynamic linker trusts them.
#include "runtime/plugin.h"
#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <link.h>
#endif

namespace ts {
namespace {

class File {
public:
  File(const std::string& path, const char* what)
      : path_(path), what_(what), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat info {};
    TS_CHECK(fd_ >= 0 && fstat(fd_, &info) == 0, what, ": cannot open ", path, ": ", std::strerror(errno));
    size_ = static_cast<uint64_t>(info.st_size);
    if (!S_ISREG(info.st_mode)) refuse("it is no file");
  }
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  uint64_t size() const { return size_; }
  [[noreturn]] void refuse(const std::string& why) const {
    fail(ErrorKind::Runtime, what_, ": cannot open ", path_, ": ", why, "; reinstall its package");
  }
  void expect(uint64_t offset, uint64_t bytes) const {
    if (offset > size_ || bytes > size_ - offset)
      refuse(concat("the file is cut short: its header counts on ", offset + bytes, " bytes, it has ", size_));
  }
  template <class T> std::vector<T> read(uint64_t offset, uint64_t count) const {
    expect(offset, count * sizeof(T));
    std::vector<T> items(count);
    auto wanted = static_cast<ssize_t>(count * sizeof(T));
    if (pread(fd_, items.data(), count * sizeof(T), static_cast<off_t>(offset)) != wanted) refuse("it cannot be read");
    return items;
  }

private:
  const std::string& path_;
  const char* what_;
  int fd_;
  uint64_t size_ = 0;
};

#ifdef __linux__

using Segments = std::vector<ElfW(Phdr)>;

// Where the bytes at a virtual address lie in the file; refuses an address outside of what is loaded.
uint64_t file_offset(const File& file, const Segments& segments, uint64_t address) {
  for (const auto& s : segments)
    if (s.p_type == PT_LOAD && address >= s.p_vaddr && address - s.p_vaddr < s.p_filesz)
      return s.p_offset + (address - s.p_vaddr);
  file.refuse("its dynamic section is damaged");
}

// The linker divides by the number of buckets and masks with the number of filter words.
void check_hash_table(const File& file, uint64_t offset) {
  auto head = file.read<uint32_t>(offset, 4);
  if (head[0] == 0 || !std::has_single_bit(head[2])) file.refuse("its symbol table is damaged");
}

void check_dynamic(const File& file, const Segments& segments, const ElfW(Phdr) & dynamic) {
  bool strings = false, symbols = false;
  for (const auto& entry : file.read<ElfW(Dyn)>(dynamic.p_offset, dynamic.p_filesz / sizeof(ElfW(Dyn)))) {
    uint64_t address = entry.d_un.d_ptr;
    if (entry.d_tag == DT_NULL) break;
    switch (entry.d_tag) {
    case DT_STRTAB: strings = file_offset(file, segments, address) > 0; break;
    case DT_SYMTAB: symbols = file_offset(file, segments, address) > 0; break;
    case DT_GNU_HASH: check_hash_table(file, file_offset(file, segments, address)); break;
    case DT_RELA:
    case DT_JMPREL:
    case DT_VERSYM:
    case DT_VERNEED: file_offset(file, segments, address); break;
    default: break;
    }
  }
  if (!strings || !symbols) file.refuse("its dynamic section is damaged");
}

void check_elf(const File& file) {
  auto head = file.read<ElfW(Ehdr)>(0, 1)[0];
  if (head.e_ident[EI_CLASS] != (sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32) ||
      head.e_phentsize != sizeof(ElfW(Phdr)))
    return; // of another machine: the linker says so by itself
  file.expect(head.e_shoff, uint64_t{head.e_shnum} * head.e_shentsize);
  Segments segments = file.read<ElfW(Phdr)>(head.e_phoff, head.e_phnum);
  bool dynamic = false;
  for (const auto& s : segments) {
    if (s.p_type == PT_LOAD || s.p_type == PT_DYNAMIC) file.expect(s.p_offset, s.p_filesz);
    if (s.p_type != PT_DYNAMIC) continue;
    check_dynamic(file, segments, s);
    dynamic = true;
  }
  if (!dynamic) file.refuse("it is no shared library");
}

#endif

} // namespace

void check_library_file(const std::string& path, const char* what) {
  if (path.find('/') == std::string::npos) return; // the linker searches for it
  File file(path, what);
#ifdef __linux__
  if (file.size() < SELFMAG || std::memcmp(file.read<char>(0, SELFMAG).data(), ELFMAG, SELFMAG) != 0)
    file.refuse("it is no shared library");
  check_elf(file);
#endif
}

} // namespace ts
