/* SPDX-License-Identifier: Apache-2.0 */
/* The C view of the PTX front end, for Python through cffi. Everything between
 * the cdef markers is read by cffi as it stands: no preprocessor inside.
 * All pointers stay valid until the module (or contents) is freed. Strings are
 * NUL-terminated and interned per module: equal text, equal pointer. */
#ifndef TESSERA_PTX_CAPI_H
#define TESSERA_PTX_CAPI_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)
/* cdef begin */
typedef struct ts_ptx_module ts_ptx_module;
typedef struct ts_image_contents ts_image_contents;

typedef struct {
  uint8_t kind; /* tessera::ptx::Operand::Kind */
  uint8_t negated;
  int8_t component;
  uint8_t float_bits;
  int32_t reg;
  uint32_t label;
  uint32_t n_elements;
  uint64_t bits;
  int64_t offset;
  const char* text;
  uint32_t first_element;  /* index into the function's operand pool */
  uint32_t first_modifier; /* words after the operand; index into the function's modifier pool */
  uint32_t n_modifiers;
} ts_ptx_operand;

typedef struct {
  const char* opcode;
  const char* full; /* "ld.global.nc.v4.b32": opcode and modifiers, interned */
  uint8_t type;     /* tessera::ptx::Type */
  uint8_t type2;    /* the second type word, e.g. the source of cvt */
  uint8_t guard_negated;
  uint8_t n_modifiers;
  int32_t guard;
  uint32_t first_modifier; /* index into the function's modifier pool */
  uint32_t first_operand;  /* index into the function's operand pool */
  uint32_t n_operands;
  uint32_t line, column;
} ts_ptx_instruction;

typedef struct {
  const char* name;
  uint8_t space, type, vector, linkage;
  uint8_t is_pointer, pointer_space;
  uint8_t has_initializer; /* 2: with addresses of variables or functions in it */
  uint32_t alignment;
  uint64_t size;              /* bytes; 0: unsized */
  uint32_t offset;            /* parameters: byte offset in the parameter block */
  uint32_t pointer_alignment; /* .ptr .align; 0: not given */
} ts_ptx_variable;

typedef struct {
  const char* name;
  uint8_t type, vector;
} ts_ptx_register;

typedef struct {
  uint32_t begin, end;
  uint32_t first_successor, n_successors;                 /* into the edge pool */
  uint32_t immediate_dominator, immediate_post_dominator; /* 0xffffffff: none */
  uint8_t is_loop_header, is_reachable;
  uint8_t exits; /* control may leave the function at the block's end */
} ts_ptx_block;

typedef struct {
  const char* name;
  uint32_t index; /* of the instruction that it precedes */
} ts_ptx_label;

typedef struct {
  const char* name;
  uint8_t is_entry, is_declaration, is_broken, linkage;
  uint8_t has_indirect_branch;
  uint32_t max_threads[3], required_threads[3];
  uint32_t required_cluster[3];
  uint32_t line;
  uint32_t parameter_block_size;
  uint32_t n_instructions, n_operands, n_modifiers, n_registers, n_blocks, n_edges;
  uint32_t n_parameters, n_returns, n_variables;
  const ts_ptx_instruction* instructions;
  const ts_ptx_operand* operands;
  const char* const* modifiers;
  const ts_ptx_register* registers;
  const ts_ptx_block* blocks;
  const uint32_t* edges;
  const ts_ptx_variable* parameters;
  const ts_ptx_variable* returns;
  const ts_ptx_variable* variables;
  uint32_t n_labels;
  uint8_t noreturn;
  uint32_t column;
  const ts_ptx_label* labels;
} ts_ptx_function;

/* Null only when memory runs out. */
ts_ptx_module* ts_ptx_parse(const char* text, size_t size);
void ts_ptx_free(ts_ptx_module* module);
uint32_t ts_ptx_error_count(const ts_ptx_module* module);
const char* ts_ptx_error(const ts_ptx_module* module, uint32_t index, uint32_t* line, uint32_t* column);
const char* ts_ptx_target(const ts_ptx_module* module);
uint32_t ts_ptx_version(const ts_ptx_module* module); /* major * 100 + minor */
uint32_t ts_ptx_function_count(const ts_ptx_module* module);
/* Builds the flat view of one function at first use. */
const ts_ptx_function* ts_ptx_function_at(ts_ptx_module* module, uint32_t index);
uint32_t ts_ptx_variable_count(const ts_ptx_module* module);
const ts_ptx_variable* ts_ptx_variable_at(const ts_ptx_module* module, uint32_t index);
/* Names of the numbers in `type`, `kind` and `space`; null past the last one. */
const char* ts_ptx_type_name(uint32_t type);
const char* ts_ptx_operand_kind_name(uint32_t kind);
const char* ts_ptx_space_name(uint32_t space);

int ts_image_kind(const void* data, size_t size);
/* Lists an image; each payload is read when it is first asked for. `data` must stay alive and
 * unchanged until the contents are freed. Null only when memory runs out. */
ts_image_contents* ts_image_open(const void* data, size_t size);
/* Reads all of an image at once; `data` may go afterwards. Null only when memory runs out. */
ts_image_contents* ts_image_read(const void* data, size_t size);
void ts_image_free(ts_image_contents* contents);
uint32_t ts_image_entry_count(const ts_image_contents* contents);
/* Kind and architecture of an entry without reading it; -1 past the last one. */
int ts_image_entry_kind(const ts_image_contents* contents, uint32_t index, uint32_t* architecture);
/* The payload, NUL-terminated; null when it can't be read: ts_image_error has one more line then. */
const char* ts_image_entry(ts_image_contents* contents, uint32_t index, int* kind, uint32_t* architecture,
                           size_t* size);
/* Frees one payload of opened contents, to be read again when asked for. */
void ts_image_drop(ts_image_contents* contents, uint32_t index);
uint32_t ts_image_error_count(const ts_image_contents* contents);
const char* ts_image_error(const ts_image_contents* contents, uint32_t index);
/* cdef end */
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
