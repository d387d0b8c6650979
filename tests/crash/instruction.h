/*
 * Where the next instruction of a stopped x86-64 process may store.
 *
 * Not a disassembler: every instruction is taken for one with an operand in memory that it writes, so
 * that none that does is missed. What it looks at without need costs a comparison of a few bytes. What no
 * compiler emits for the library (scatters, moffs) and what can only hit the stack (push, call) is left
 * out; the recorder compares all of the region with what it has seen, and fails if something was missed.
 */
#ifndef RF_CRASH_INSTRUCTION_H
#define RF_CRASH_INSTRUCTION_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/user.h>

/* The most that one instruction stores at once. */
#define RF_STORE_MAX 64u

struct rf_span {
    uint64_t from;
    uint64_t to;
};

static inline uint64_t rf_register(const struct user_regs_struct *r, unsigned number)
{
    const unsigned long long *at[16] = {&r->rax, &r->rcx, &r->rdx, &r->rbx, &r->rsp, &r->rbp,
                                        &r->rsi, &r->rdi, &r->r8,  &r->r9,  &r->r10, &r->r11,
                                        &r->r12, &r->r13, &r->r14, &r->r15};
    return *at[number & 15];
}

static inline bool rf_is_syscall(const uint8_t *code)
{
    return code[0] == 0x0f && code[1] == 0x05;
}

/* [from, to) is all that it can change, besides the stack. */
static inline struct rf_span rf_may_store(const uint8_t *code, const struct user_regs_struct *r)
{
    unsigned rex_r_x_b = 0; /* X in bit 1, B in bit 0 */
    bool scaled = false;
    while (*code == 0x66 || *code == 0x67 || *code == 0xf2 || *code == 0xf3 || *code == 0xf0 ||
           *code == 0x2e || *code == 0x36 || *code == 0x3e || *code == 0x26 || *code == 0x64 ||
           *code == 0x65) {
        code++;
    }
    if ((*code & 0xf0) == 0x40) {
        rex_r_x_b = *code & 3u;
        code++;
    }
    if (code[0] >= 0xa4 && code[0] <= 0xab) { /* movs, stos: one step of a repetition at a time */
        return (struct rf_span){r->rdi - RF_STORE_MAX, r->rdi + RF_STORE_MAX};
    }
    if (code[0] == 0xc5) {
        code += 3;
    } else if (code[0] == 0xc4) {
        rex_r_x_b = (unsigned)(~code[1] >> 5) & 3u;
        code += 4;
    } else if (code[0] == 0x62) {
        rex_r_x_b = (unsigned)(~code[1] >> 5) & 3u;
        scaled = true; /* short displacements count vectors */
        code += 5;
    } else if (code[0] == 0x0f && (code[1] == 0x38 || code[1] == 0x3a)) {
        code += 3;
    } else if (code[0] == 0x0f) {
        code += 2;
    } else {
        code += 1;
    }

    unsigned mod = code[0] >> 6, rm = code[0] & 7u;
    uint64_t at = 0;
    int32_t far;
    if (mod == 3) {
        return (struct rf_span){0, 0};
    }
    code++;
    if (rm == 4) {
        unsigned scale = code[0] >> 6, index = (code[0] >> 3 & 7u) | (rex_r_x_b >> 1) << 3;
        unsigned base = (code[0] & 7u) | (rex_r_x_b & 1u) << 3;
        code++;
        at = index == 4 ? 0 : rf_register(r, index) << scale;
        if ((base & 7u) == 5 && mod == 0) {
            memcpy(&far, code, 4);
            at += (uint64_t)(int64_t)far;
        } else {
            at += rf_register(r, base);
        }
    } else if (rm == 5 && mod == 0) {
        return (struct rf_span){0, 0}; /* beside the code: our own variables */
    } else {
        at = rf_register(r, rm | (rex_r_x_b & 1u) << 3);
    }
    if (mod == 1) {
        at += (uint64_t)(int64_t)(int8_t)code[0] * (scaled ? RF_STORE_MAX : 1);
    } else if (mod == 2) {
        memcpy(&far, code, 4);
        at += (uint64_t)(int64_t)far;
    }
    uint64_t slack = scaled ? 128 * RF_STORE_MAX : 8;
    return (struct rf_span){at - slack, at + RF_STORE_MAX + (scaled ? slack : 0)};
}

#endif
