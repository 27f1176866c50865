/* The benchmark's workloads written by hand in C: about as fast as one core can simulate them.
 *
 *   cc -O3 -o peer peer.c -lm                -DLANES: FIFO lanes beside the heap for events with a constant delay
 *   peer W1|W2|W3 REQUESTS SEED              prints one JSON object
 *
 * One event queue (a 4-ary heap ordered by time, then by order of scheduling), one record per call, one intrusive
 * FIFO per station, a histogram of sojourn times per station. It knows these three workloads and nothing else.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ARRIVAL, WORKED, DEADLINE };
enum { GATEWAY, SERVICE, STORE };
#define NOBODY UINT32_MAX
#define ATTEMPTS 3
#define PATIENCE 0.2
#define ERROR_RATE 0.1

typedef struct { double at; uint32_t order, what; } Event; /* what: call << 2 | kind */
typedef struct { double born; uint32_t caller, next, deadline; uint16_t station, attempts; } Call;
typedef struct { int slots, busy, room, waiting, constant; double mean; uint32_t first, last; uint64_t bins[2048]; } Station;

static Event *heap;
static uint32_t heap_size, heap_room, order;
static Call *calls;
static uint32_t calls_made, calls_room, free_call = NOBODY;
static Station stations[3];
static int chain;
static double now, gap, wait_sum, sojourn_sum;
static uint64_t seed, events, waits, succeeded, ended;

static void *grown(void *block, uint32_t *room, size_t each) {
    *room = *room ? 2 * *room : 4096;
    block = realloc(block, *room * each);
    if (!block) { fputs("out of memory\n", stderr); exit(1); }
    return block;
}

static inline double uniform(void) { /* splitmix64, in (0, 1) */
    uint64_t z = (seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return ((double)((z ^ (z >> 31)) >> 11) + 0.5) * 0x1p-53;
}
static inline double exponential(double mean) { return -mean * log(uniform()); }

static inline int before(Event a, Event b) { return a.at < b.at || (a.at == b.at && a.order < b.order); }

static inline uint32_t schedule(double at, uint32_t kind, uint32_t call) {
    Event e = {at, ++order, call << 2 | kind};
    if (heap_size == heap_room) heap = grown(heap, &heap_room, sizeof *heap);
    uint32_t i = heap_size++;
    while (i) {
        uint32_t up = (i - 1) / 4;
        if (!before(e, heap[up])) break;
        heap[i] = heap[up];
        i = up;
    }
    heap[i] = e;
    return e.order;
}

static inline Event popped(void) {
    Event top = heap[0], e = heap[--heap_size];
    uint32_t i = 0, child;
    while ((child = 4 * i + 1) < heap_size) {
        uint32_t end = child + 4 < heap_size ? child + 4 : heap_size, best = child;
        while (++child < end)
            if (before(heap[child], heap[best])) best = child;
        if (!before(heap[best], e)) break;
        heap[i] = heap[best];
        i = best;
    }
    heap[i] = e;
    return top;
}

#ifdef LANES
#define LANE (1u << 16)
static Event lanes[2][LANE];
static uint32_t lane_head[2], lane_tail[2];
static inline uint32_t delay(int lane, double by, uint32_t kind, uint32_t call) {
    if (lane_tail[lane] - lane_head[lane] == LANE) { fputs("lane full\n", stderr); exit(1); }
    lanes[lane][lane_tail[lane]++ % LANE] = (Event){now + by, ++order, call << 2 | kind};
    return order;
}
static inline int next_event(Event *e) {
    int from = -1;
    *e = heap_size ? heap[0] : (Event){INFINITY, 0, 0};
    for (int lane = 0; lane < 2; lane++) {
        Event *first = &lanes[lane][lane_head[lane] % LANE];
        if (lane_head[lane] != lane_tail[lane] && before(*first, *e)) { *e = *first; from = lane; }
    }
    if (from >= 0) lane_head[from]++;
    else if (heap_size) popped();
    else return 0;
    return 1;
}
#else
static inline uint32_t delay(int lane, double by, uint32_t kind, uint32_t call) {
    (void)lane;
    return schedule(now + by, kind, call);
}
static inline int next_event(Event *e) {
    if (!heap_size) return 0;
    *e = popped();
    return 1;
}
#endif

static inline uint32_t new_call(int station, uint32_t caller) {
    uint32_t c = free_call;
    if (c != NOBODY) free_call = calls[c].next;
    else {
        if (calls_made == calls_room) calls = grown(calls, &calls_room, sizeof *calls);
        c = calls_made++;
    }
    calls[c] = (Call){now, caller, NOBODY, 0, (uint16_t)station, 0};
    return c;
}
static inline void drop(uint32_t c) {
    calls[c].deadline = 0; /* a deadline that is still scheduled finds that it is nobody's */
    calls[c].next = free_call;
    free_call = c;
}

static inline void begin(uint32_t c) {
    int s = calls[c].station;
    Station *st = &stations[s];
    st->busy++;
    if (s == GATEWAY) { wait_sum += now - calls[c].born; waits++; }
    if (st->constant) delay(0, st->mean, WORKED, c);
    else schedule(now + exponential(st->mean), WORKED, c);
}

static inline int admitted(uint32_t c) {
    Station *st = &stations[calls[c].station];
    if (st->busy < st->slots) { begin(c); return 1; }
    if (st->waiting == st->room) return 0;
    if (st->waiting++) calls[st->last].next = c;
    else st->first = c;
    st->last = c;
    return 1;
}

static void end(uint32_t c, int good);

static void attempt(uint32_t c) { /* the gateway's call, until one is under way or all were refused */
    while (calls[c].attempts < ATTEMPTS) {
        calls[c].attempts++;
        uint32_t sent = new_call(SERVICE, c);
        if (admitted(sent)) {
            calls[sent].deadline = delay(1, PATIENCE, DEADLINE, sent);
            return;
        }
        drop(sent);
    }
    end(c, 0);
}

static void end(uint32_t c, int good) {
    Call call = calls[c];
    Station *st = &stations[call.station];
    st->busy--;
    if (st->waiting) {
        uint32_t next = st->first;
        st->first = calls[next].next;
        st->waiting--;
        begin(next);
    }
    union { double d; uint64_t u; } bits = {now - call.born + 1e-9};
    st->bins[bits.u >> 47 & 2047]++; /* the exponent's low bits and five of the fraction */
    drop(c);
    if (call.station == GATEWAY) {
        ended++;
        succeeded += good;
        sojourn_sum += now - call.born;
    } else if (call.caller != NOBODY) { /* else the caller gave up on it */
        if (call.station == STORE || good) end(call.caller, good);
        else attempt(call.caller);
    }
}

static void simulate(uint64_t requests) {
    Event e;
    uint64_t arrivals = 0;
    schedule(exponential(gap), ARRIVAL, 0);
    while (next_event(&e)) {
        uint32_t c = e.what >> 2;
        now = e.at;
        events++;
        switch (e.what & 3) {
        case ARRIVAL:
            if (++arrivals < requests) schedule(now + exponential(gap), ARRIVAL, 0);
            c = new_call(GATEWAY, NOBODY);
            if (!admitted(c)) { ended++; drop(c); }
            break;
        case WORKED:
            if (!chain || calls[c].station == STORE) end(c, 1);
            else if (calls[c].station == GATEWAY) attempt(c);
            else if (uniform() < ERROR_RATE) end(c, 0);
            else {
                uint32_t sent = new_call(STORE, c);
                if (!admitted(sent)) { drop(sent); end(c, 0); }
            }
            break;
        default:
            if (calls[c].deadline == e.order) {
                uint32_t caller = calls[c].caller;
                calls[c].caller = NOBODY;
                calls[c].deadline = 0;
                attempt(caller);
            }
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 4 || argv[1][0] != 'W' || !strchr("123", argv[1][1])) return 2;
    uint64_t requests = strtoull(argv[2], 0, 10);
    seed = strtoull(argv[3], 0, 10) * 0x2545f4914f6cdd1du;
    chain = argv[1][1] == '3';
    gap = argv[1][1] == '1' ? 1 / 80.0 : argv[1][1] == '2' ? 1 / 700.0 : 1 / 1000.0;
    if (chain) {
        stations[GATEWAY] = (Station){.slots = 64, .room = 100, .mean = 0.001, .constant = 1};
        stations[SERVICE] = (Station){.slots = 32, .room = 100, .mean = 0.020};
        stations[STORE] = (Station){.slots = 16, .room = 100, .mean = 0.010};
    } else stations[GATEWAY] = (Station){.slots = argv[1][1] == '1' ? 1 : 8, .room = 1 << 30, .mean = 0.010};
    clock_t began = clock();
    simulate(requests);
    double cpu_s = (double)(clock() - began) / CLOCKS_PER_SEC;
    printf("{\"requests\": %llu, \"events\": %llu, \"cpu_s\": %.6f, \"wait_ms\": %.6f, \"success\": %.6f, "
           "\"mean_ms\": %.6f}\n", (unsigned long long)ended, (unsigned long long)events, cpu_s,
           1e3 * wait_sum / (double)waits, (double)succeeded / (double)ended, 1e3 * sojourn_sum / (double)waits);
    return 0;
}
