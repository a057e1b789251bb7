// A communicator of host memory: the collectives of one group of ranks, whatever carries them.
#pragma once
#include "comm/call.h"

namespace ts::comm {

class Group {
public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // Before the first collective, which none of this counts as: all ranks are here, and need nothing more of each other
  // by other ways.
  virtual void settle(double timeout) = 0;
  virtual void barrier(const Call& call) = 0;
  virtual void broadcast(const Call& call, void* data, int64_t count) = 0;
  virtual void all_reduce(const Call& call, const void* from, void* to, int64_t count) = 0;
  virtual void reduce(const Call& call, const void* from, void* to, int64_t count) = 0; // `to` on the root alone
  virtual void all_gather(const Call& call, const void* from, Parts to, Counts counts) = 0;
  virtual void gather(const Call& call, const void* from, Parts to, Counts counts) = 0; // `to` on the root alone
  virtual void scatter(const Call& call, ConstParts from, void* to, Counts counts) = 0; // `from` on the root alone
  virtual void reduce_scatter(const Call& call, ConstParts from, void* to, Counts counts) = 0;
  virtual void all_to_all(const Call& call, ConstParts from, Counts given, Parts to, Counts gotten) = 0;
  virtual void send(const Call& call, const void* data, int64_t count, int to, int64_t tag) = 0;
  // from -1: of any; returns who
  virtual int receive(const Call& call, void* data, int64_t count, int from, int64_t tag) = 0;

  virtual void abort(const std::string& reason) = 0; // everything under way and to come ends with this text
  virtual bool aborted() const = 0;
};

} // namespace ts::comm
