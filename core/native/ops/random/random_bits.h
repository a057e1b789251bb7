// Random numbers as building blocks. Which words of the Philox stream a call consumes is part of the contract, so
// that a seed gives the same numbers on every backend. For n elements:
//   uniform   float32, float16, bfloat16: n words, element i from word offset+i; float64: 2n words
//   normal    float32, float16, bfloat16: 2n words, element i from words offset+2i and +2i+1; float64: 4n words
//   integers  spans up to 2^32: n words, value = low + word % span; wider: 2n words
// The generator then advances by the words used, rounded up to a multiple of 4.
#pragma once
#include "ops/common/raw.h"
#include "runtime/generator.h"

namespace ts {

// The given generator, or the device's. RuntimeError when it belongs to another device.
Generator& generator_for(Generator* given, Device device, const char* op);
// Words of the device's default generator for a kernel that draws itself: the key, and the position of the first.
struct Place {
  uint64_t seed, offset;
};
Place claim_place(Device device, uint64_t words);
// Philox words: uint32 or uint64, contiguous.
Tensor random_bits(IntSpan sizes, DType t, Device device, Generator& g);
// Contiguous fresh tensors: uniform in [0, 1), standard normal; t floating.
Tensor uniform_tensor(IntSpan sizes, DType t, Device device, Generator& g);
Tensor normal_tensor(IntSpan sizes, DType t, Device device, Generator& g);
// Uniform float32 numbers as int64 multiples of 2^-24, for devices without float32.
Tensor uniform_steps(IntSpan sizes, Device device, Generator& g);
// True where a uniform float32 number is at least p: the same elements on a device without float32.
Tensor uniform_at_least(IntSpan sizes, double p, Device device, Generator& g);
// RuntimeError unless every integer in [low, high) is a value of t: a draw is never rounded or wrapped.
void check_integer_range(int64_t low, int64_t high, DType t, const char* op);
// The dtype, or the default one. NotImplementedError unless it is floating.
DType floating_dtype(DType t, const char* op);
// What a floating dtype holds: its largest number, its smallest positive normal one, and the largest not above x.
double largest_number(DType t);
double smallest_number(DType t);
double floor_number(long double x, DType t);
// t = t * scale + shift in place.
void scale_and_shift(const Tensor& t, double scale, double shift);
// Fills t, of any strides.
void fill_uniform(const Tensor& t, Generator& g);
void fill_normal(const Tensor& t, Generator& g);
// Integers in [low, high), low < high, in any dtype.
void fill_integers(const Tensor& t, int64_t low, int64_t high, Generator& g);
// The same of complex tensors too, which are drawn part by part, normal ones with variance 1 in all.
DType drawn_dtype(DType t, const char* op);
void draw_uniform(const Tensor& t, Generator& g);
void draw_normal(const Tensor& t, Generator& g);

} // namespace ts
