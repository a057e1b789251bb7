// What newer versions of the C and C++ libraries brought, for libraries that are to load where those are old: linked
// into each of ours, and seen by none but it.
#include <new>

#define HIDDEN __attribute__((visibility("hidden")))

extern "C" {

// glibc 2.32: whether the process never had a second thread. Counters are then counted with atomics always.
HIDDEN char __libc_single_threaded = 0;

// glibc 2.33: before, the header named the version of the structure.
int __fxstat(int version, int file, struct stat* found);
HIDDEN int fstat(int file, struct stat* found) {
#if defined(__x86_64__)
  return __fxstat(1, file, found);
#else
  return __fxstat(0, file, found);
#endif
}

// libstdc++ 11: what copies and ends an exception_ptr; done by the functions that were there before.
void copy_pointer(void* fresh, const void* other) __asm__("_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
void end_pointer(void* pointer) __asm__("_ZNSt15__exception_ptr13exception_ptrD1Ev");

HIDDEN void add_reference(void* pointer) __asm__("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
void add_reference(void* pointer) {
  void* kept_for_ever = nullptr;
  copy_pointer(&kept_for_ever, pointer);
}

HIDDEN void release(void* pointer) __asm__("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void release(void* pointer) {
  end_pointer(pointer);
  *static_cast<void**>(pointer) = nullptr;
}

} // extern "C"

namespace std {

// libstdc++ 11
[[noreturn]] HIDDEN void __throw_bad_array_new_length() { throw bad_array_new_length(); }

} // namespace std
