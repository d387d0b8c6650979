/*
 * Locks that are held, and for how long, at no cost to those who take them.
 *
 * A member names its locks in its descriptor before it takes them (lock.h), so whoever looks sees
 * what is held; but nobody writes down since when. Instead one guardian of the store looks every
 * second or two, and notes beside each lock that it finds held which hold it is and when that was.
 * A later look at the same hold leaves the note as it is. Whoever asks compares the note with what
 * is held then: it has been held for at least that long, and at most the pause between two looks
 * longer. What comes and goes between two looks is never noted.
 *
 * It is the same hold if lock and owner are the same and the owner has neither ended a call nor
 * written a record in between; the records of a chain, which belong to one operation, don't count.
 *
 * A note is one word, hold and time, and changes by compare-and-swap: a looker that was stopped in
 * between, and goes on late, finds another word and stores nothing. Nothing is decided by a note.
 */
#ifndef RF_HOLD_H
#define RF_HOLD_H

#include "actor.h"

/* Looks at all members and notes what they hold. */
void rf_hold_note_all(struct rf_map *map);
/* The same, unless somebody has done it less than a second ago. */
void rf_hold_note_sometimes(struct rf_map *map);

rf_status rf_shm_list_locks(rf_store *store, rf_visit_lock *visit, void *context,
                            rf_detail *detail);

#endif
