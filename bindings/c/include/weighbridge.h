/*
 * Weighbridge: opens any checkpoint, proves that it fits the model, moves exactly the bytes needed.
 *
 * Objects are made by one function and freed by another; all else only looks at them, and may be called by several threads at once. What an
 * object gives (strings, shapes, bytes) lives as long as it does. Pointers to objects must not be null unless it is said; strings are UTF-8
 * and end with a NUL. A function that can fail takes a `wb_error **`, which may be null, and puts an error there that the caller frees.
 */

#ifndef WEIGHBRIDGE_H
#define WEIGHBRIDGE_H

/* Made of the library's sources by cbindgen. To change it: WEIGHBRIDGE_BLESS=1 cargo test -p weighbridge-c */

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/**
 * The version of the interface that this header describes.
 */
#define WB_ABI_VERSION 1

/**
 * The kind of an error.
 */
typedef enum wb_error_kind {
  /**
   * The request is impossible: neither the model nor a file is wrong.
   */
  WB_ERROR_MISUSE = 1,
  /**
   * The checkpoint cannot be opened.
   */
  WB_ERROR_CHECKPOINT = 2,
  /**
   * The checkpoint does not fit its model, or cannot be planned as asked.
   */
  WB_ERROR_PLAN = 3,
  /**
   * No family claims the checkpoint: it can be planned with the layout `source` all the same.
   */
  WB_ERROR_UNKNOWN_MODEL = 4,
  /**
   * Loading failed.
   */
  WB_ERROR_LOAD = 5,
  /**
   * The caller has ended it.
   */
  WB_ERROR_CANCELLED = 6,
  /**
   * The library has a bug.
   */
  WB_ERROR_INTERNAL = 7,
} wb_error_kind;

/**
 * A checkpoint whose headers have been read and found sound.
 */
typedef struct wb_checkpoint wb_checkpoint;

/**
 * An error: all problems, each with its hints.
 */
typedef struct wb_error wb_error;

/**
 * Parameters in memory, by name. They stay where they are.
 */
typedef struct wb_loaded wb_loaded;

/**
 * How to fill every slot of a runtime, and the checkpoint to fill it from.
 */
typedef struct wb_plan wb_plan;

/**
 * A tensor of a checkpoint.
 */
typedef struct wb_entry {
  /**
   * Its name there.
   */
  const char *name;
  /**
   * How it is stored: `bf16`, `q4_k`.
   */
  const char *scheme;
  /**
   * The extents, slowest axis first.
   */
  const uint64_t *shape;
  /**
   * The number of extents.
   */
  size_t rank;
  /**
   * Its bytes in the file.
   */
  uint64_t bytes;
} wb_entry;

/**
 * Is told how many bytes are there of those that are wanted, by any thread; ends the load by returning false.
 */
typedef bool (*wb_progress_fn)(void *context, uint64_t done, uint64_t total);

/**
 * How to load. Set `size` to `sizeof(wb_load_options)` and all else to zero, then what differs.
 */
typedef struct wb_load_options {
  /**
   * `sizeof(wb_load_options)`.
   */
  size_t size;
  /**
   * Threads; 0 is as many as the machine has.
   */
  size_t threads;
  /**
   * The limit on bytes of buffers; 0 for none.
   */
  uint64_t memory;
  /**
   * True gives all parameters memory of their own: none is borrowed from a mapped file.
   */
  bool owned;
  /**
   * Is told how far the load is; null for nobody.
   */
  wb_progress_fn progress;
  /**
   * The first argument of `progress`. Threads share it.
   */
  void *context;
} wb_load_options;

/**
 * The bytes of one plane of a parameter.
 */
typedef struct wb_plane {
  /**
   * The first byte; null if there is none. The bytes live as long as the loaded parameters.
   */
  const void *data;
  /**
   * Their number.
   */
  size_t bytes;
  /**
   * True if they lie in a mapped file. The system reads them when they are touched.
   */
  bool borrowed;
} wb_plane;

/**
 * A parameter that is about to be loaded.
 */
typedef struct wb_place {
  /**
   * Its index in the plan.
   */
  size_t index;
  /**
   * Its name.
   */
  const char *name;
  /**
   * Bytes of each plane.
   */
  const uint64_t *plane_bytes;
  /**
   * The number of planes.
   */
  size_t planes;
  /**
   * The address of each plane must be a multiple of this many bytes.
   */
  size_t align;
} wb_place;

/**
 * Puts into `planes` where each plane of the parameter goes, which is as long as `place` says; ends the load by returning false. Called in the
 * order of the plan before anything is read, once for each parameter that is not tied to another.
 */
typedef bool (*wb_place_fn)(void *context, const struct wb_place *place, void **planes);

/**
 * Options of a plan. Set `size` to `sizeof(wb_plan_options)` and all else to zero, then what differs.
 */
typedef struct wb_plan_options {
  /**
   * `sizeof(wb_plan_options)`. Another size is an error.
   */
  size_t size;
  /**
   * `source`, `canonical`, `in-place`, `gguf`, `hf`, `mlx`, `vllm`, `modules` or `packed`; null for `canonical`.
   */
  const char *layout;
  /**
   * Ranks that share each layer; 0 is 1.
   */
  uint64_t tp;
  /**
   * Stages that the layers are dealt to; 0 is 1.
   */
  uint64_t pp;
  /**
   * Groups that the experts are dealt to; 0 is 1.
   */
  uint64_t ep;
  /**
   * The rank whose share is planned, counted from 0.
   */
  uint64_t rank;
  /**
   * Rules `PATTERN=SCHEME`; the first that matches wins.
   */
  const char *const *encode;
  /**
   * Their number.
   */
  size_t encode_count;
  /**
   * A scheme for each tensor by its role, as `q4_k_m`; null for none.
   */
  const char *preset;
  /**
   * A file with rules for names; null for none.
   */
  const char *rules;
} wb_plan_options;

/**
 * A parameter as it will be in memory.
 */
typedef struct wb_param {
  /**
   * The runtime's name.
   */
  const char *name;
  /**
   * How it is held: `bf16`, `q4_k`.
   */
  const char *scheme;
  /**
   * The extents, slowest axis first.
   */
  const uint64_t *shape;
  /**
   * The number of extents.
   */
  size_t rank;
  /**
   * Bytes of all planes.
   */
  uint64_t bytes;
  /**
   * Bytes of each plane.
   */
  const uint64_t *plane_bytes;
  /**
   * The number of planes.
   */
  size_t planes;
  /**
   * The earlier parameter whose bytes it shares, by its index; `SIZE_MAX` if it has its own.
   */
  size_t tied_to;
} wb_param;

/**
 * The needs of a load.
 */
typedef struct wb_needs {
  /**
   * Bytes that stay in mapped files.
   */
  uint64_t borrowed;
  /**
   * Bytes of memory for parameters.
   */
  uint64_t owned;
  /**
   * Bytes of buffers at most, all threads together.
   */
  uint64_t scratch;
  /**
   * Bytes taken from files.
   */
  uint64_t read;
  /**
   * The number of reads.
   */
  size_t reads;
} wb_needs;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the version of the library's interface. Compare it with `WB_ABI_VERSION`: another one is another interface.
 */
uint32_t wb_abi_version(void);

/**
 * Returns the version of the library as text.
 */
const char *wb_version(void);

/**
 * Opens the checkpoint at `path` (UTF-8), a file or a directory of any format. It reads headers alone. Returns null on failure.
 */
struct wb_checkpoint *wb_open(const char *path,
                              struct wb_error **error);

/**
 * Returns the format of its files: `gguf`, `hf`, `safetensors`.
 */
const char *wb_checkpoint_format(const struct wb_checkpoint *checkpoint);

/**
 * Returns the number of its tensors.
 */
size_t wb_checkpoint_count(const struct wb_checkpoint *checkpoint);

/**
 * Fills `out` with tensor `index`, counted from 0. Returns false if there is none.
 */
bool wb_checkpoint_entry(const struct wb_checkpoint *checkpoint, size_t index, struct wb_entry *out);

/**
 * Frees a checkpoint. Its plans stay. Null is ignored.
 */
void wb_checkpoint_free(struct wb_checkpoint *checkpoint);

/**
 * Returns the kind of an error.
 */
enum wb_error_kind wb_error_get_kind(const struct wb_error *error);

/**
 * Returns the whole message with its hints, as people read it.
 */
const char *wb_error_message(const struct wb_error *error);

/**
 * Returns the number of problems.
 */
size_t wb_error_problem_count(const struct wb_error *error);

/**
 * Returns problem `problem`, counted from 0; null if there is none.
 */
const char *wb_error_problem(const struct wb_error *error, size_t problem);

/**
 * Returns hint `hint` for problem `problem`, both counted from 0; null if there is none.
 */
const char *wb_error_hint(const struct wb_error *error, size_t problem, size_t hint);

/**
 * Frees an error. Null is ignored.
 */
void wb_error_free(struct wb_error *error);

/**
 * Loads the parameters of a plan, each once. `options` may be null. Returns null on failure.
 */
struct wb_loaded *wb_load(const struct wb_plan *plan, const struct wb_load_options *options, struct wb_error **error);

/**
 * Fills `out` with a plane, counted from 0, of the parameter called `name`. Returns false if there is none.
 */
bool wb_loaded_plane(const struct wb_loaded *loaded, const char *name, size_t plane, struct wb_plane *out);

/**
 * Frees loaded parameters. Null is ignored.
 */
void wb_loaded_free(struct wb_loaded *loaded);

/**
 * Loads the parameters of a plan into the caller's memory, which `place` names. Files are read straight into it. `options` may be null.
 * Returns false on failure.
 */
bool wb_load_into(const struct wb_plan *plan,
                  wb_place_fn place,
                  void *place_context,
                  const struct wb_load_options *options,
                  struct wb_error **error);

/**
 * Plans how a checkpoint becomes the parameters of a runtime. It reads no tensor. `options` may be null. Returns null if anything does not
 * fit: the error has all problems.
 */
struct wb_plan *wb_plan_new(const struct wb_checkpoint *checkpoint,
                            const struct wb_plan_options *options,
                            struct wb_error **error);

/**
 * Returns a summary for people: the bytes that the plan moves, changes and reads.
 */
const char *wb_plan_summary(const struct wb_plan *plan);

/**
 * Returns the number of parameters.
 */
size_t wb_plan_count(const struct wb_plan *plan);

/**
 * Fills `out` with parameter `index`, counted from 0 in the order of the layout. Returns false if there is none.
 */
bool wb_plan_param(const struct wb_plan *plan, size_t index, struct wb_param *out);

/**
 * Fills `out` with the needs of a load with `options`, which may be null. It reads nothing. Returns false on failure.
 */
bool wb_plan_needs(const struct wb_plan *plan,
                   const struct wb_load_options *options,
                   struct wb_needs *out,
                   struct wb_error **error);

/**
 * Frees a plan. Parameters that it has loaded stay. Null is ignored.
 */
void wb_plan_free(struct wb_plan *plan);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WEIGHBRIDGE_H */
