/*
 * Sleeping on a lock and waking (lock.c, reap.c): one lock, three mortal contenders, one guardian. A sleeper is
 * queued on the lock word and on its owner's liveness word; unlocking wakes one sleeper of the lock; a death
 * wakes one sleeper of the dead one's liveness word (the kernel), whoever that is. A lock is named in the
 * descriptor before it is taken or slept on; the reaper wakes everybody on it.
 * An error is a state in which somebody sleeps for ever.
 *   BAD_NONAME    locks are not named: an unlocker that dies before its wake, or one that was woken and dies
 *                 before it passes the wake on, leaves others asleep
 */
#define W 3
#ifndef DEATHS
#define DEATHS 1
#endif
#define NOBODY 9
byte owner=NOBODY; bit wbit;
bit deadf[W]; bit reaped[W];
bit qL[W];              /* asleep on the lock word */
byte qV[W];             /* ... and on this member's liveness word */
bit gaw=1;              /* guardian awake */
bit named[W];
byte deaths, fin;
bit asleep[W];

inline wakeL1() { if :: asleep[0]&&qL[0] -> asleep[0]=0;qL[0]=0
                     :: asleep[1]&&qL[1] -> asleep[1]=0;qL[1]=0
                     :: asleep[2]&&qL[2] -> asleep[2]=0;qL[2]=0
                     :: else fi }
inline wakeLall() { k=0; do :: k<W -> if :: asleep[k]&&qL[k] -> asleep[k]=0;qL[k]=0 :: else fi; k++ :: else -> break od; k=0 }
inline wakeV1(v) { if :: asleep[0]&&qV[0]==v -> asleep[0]=0;qL[0]=0
                      :: asleep[1]&&qV[1]==v -> asleep[1]=0;qL[1]=0
                      :: asleep[2]&&qV[2]==v -> asleep[2]=0;qL[2]=0
                      :: !gaw -> gaw=1
                      :: else fi }
inline die() { deaths++; deadf[me]=1; asleep[me]=0; qL[me]=0; wakeV1(me); goto killed }
#define MAYDIE :: atomic { deaths<DEATHS -> die() }
inline reap(d) {                             /* reap.generation, then reap.unlocked and reap.woken */
  atomic { if :: deadf[d] && !reaped[d] -> reaped[d]=1;
#ifndef BAD_NONAME
     if :: named[d] -> wakeLall() :: else fi;
#endif
   :: else fi } }
#define FREEL (owner==NOBODY || (deadf[owner%W] && reaped[owner%W]))

proctype c(byte me) { byte k; byte o; bit w, slept;
  named[me]=1;
  do
  :: atomic { FREEL -> owner=me; if :: slept -> wbit=1 :: else fi; break }   /* one that slept takes it with the waiters bit set */
  :: atomic { !FREEL -> o=owner; wbit=1 };                                   /* lock.marked */
     if
     :: deadf[o%W] && !reaped[o%W] -> reap(o)
     :: else ->
        /* futex_waitv: compares both words, then queues; a change gives EAGAIN */
        atomic { if :: owner==o && wbit && !deadf[o%W] && !reaped[o%W] -> asleep[me]=1; qL[me]=1; qV[me]=o; slept=1
                    :: else fi }
     fi;
     if :: atomic { !asleep[me] -> o=0 } MAYDIE fi                           /* lock.woken */
  MAYDIE
  od;
  if :: skip MAYDIE fi;
  atomic { w=wbit; owner=NOBODY; wbit=0 };
  if :: skip MAYDIE fi;                                                      /* lock.before_wake */
  if :: w -> atomic { wakeL1() } :: else fi;
  named[me]=0;
  fin++;
killed: skip }

proctype g() { byte k; byte d;
  do
  :: atomic { gaw -> d=0 };
     do :: d<W -> if :: deadf[d] && !reaped[d] -> reap(d) :: else fi; d++ :: else -> break od;
     atomic { if :: (deadf[0]&&!reaped[0])||(deadf[1]&&!reaped[1])||(deadf[2]&&!reaped[2]) -> skip :: else -> gaw=0 fi };
end:  gaw
  od }
init { atomic { run c(0); run c(1); run c(2); run g() } }
