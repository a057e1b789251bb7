// Connections to every other rank: bytes of collectives both ways at once, messages, and news of those who give up.
#pragma once
#include "comm/post.h"
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

struct pollfd;

namespace ts::comm {

// What a collective gives to one rank and gets from it, each in order.
class Flow {
public:
  struct Piece {
    std::byte* at;
    size_t bytes;
  };
  void give(const void* data, size_t bytes) { add(out_, const_cast<void*>(data), bytes); }
  void get(void* data, size_t bytes) {
    add(in_, data, bytes);
    asked_ += bytes;
  }
  bool given() const { return next_out_ == out_.size(); }
  bool gotten() const { return next_in_ == in_.size(); }
  size_t received() const { return received_; } // bytes, since the flow began
  size_t asked() const { return asked_; }       // bytes to be received until all is gotten

private:
  friend class Wires;
  static void add(std::vector<Piece>& pieces, void* data, size_t bytes) {
    if (bytes) pieces.push_back({static_cast<std::byte*>(data), bytes});
  }
  std::vector<Piece> out_, in_;
  size_t next_out_ = 0, next_in_ = 0, received_ = 0, asked_ = 0;
};

// Takes over three connected sockets for each rank (-1 at this one's place): of collectives, of messages, and of news.
class Wires final : public Channel {
public:
  Wires(std::vector<int> collectives, std::vector<int> letters, std::vector<int> news, int rank, int spins);
  ~Wires() override;
  Wires(const Wires&) = delete;
  Wires& operator=(const Wires&) = delete;

  int rank() const override { return rank_; }
  int ranks() const override { return static_cast<int>(collectives_.size()); }

  // Until all of it is done; with `marks`, until that many bytes have come from each rank. A flow for each rank.
  void run(std::vector<Flow>& flows, std::span<const size_t> marks, const Patience& patience);

  void write(int to, const void* data, size_t bytes, const Patience& patience) override;
  void read(int from, void* data, size_t bytes, const Patience& patience) override;
  bool pending(int from) override;
  void check() override; // throws if aborted here or elsewhere
  void look_around(std::span<const int> missing, const Patience& patience, double began) override;

  void abort(const std::string& reason); // here, and told to the others
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  void began(int rank, const char* text); // what a rank last said that it begins

private:
  bool push(int peer, Flow& flow, const Patience& patience);
  bool pull(int peer, Flow& flow, const Patience& patience);
  // A wait that has begun; whether somebody has given up meanwhile: what came before that is still taken.
  struct Wait {
    double began;
    bool over = false;
  };
  // Sleeps until one of the sockets is ready (`asked`: news is added), then looks around.
  void sleep(std::vector<pollfd>& asked, std::span<const int> missing, const Patience& patience, Wait& wait);
  [[noreturn]] void gone(int peer, const Patience& patience);
  [[noreturn]] void fail_aborted();
  void read_news();
  void set_aborted(const std::string& reason); // the first reason stays
  std::string told(std::span<const int> missing, const Patience& patience, const char* why, bool late);

  std::vector<int> collectives_, letters_, news_;
  int rank_, spins_;
  std::atomic<bool> aborted_{false};
  std::mutex mutex_; // of what follows
  std::string reason_;
  std::vector<std::string> heard_, began_; // by rank: news as it came, and what was begun last
  std::vector<bool> silent_;               // whose news have ended
};

} // namespace ts::comm
