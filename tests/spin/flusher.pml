/*
 * Who writes what nobody waits for (admit.h, guardian.c: tend_log): one guardian at a time is the flusher. Whoever
 * commits and finds none pokes the guardian of his own process; a flusher to whom nothing new has come for a whole tick
 * leaves, and looks again. Processes may die anywhere; a survivor settles them, then looks after the log.
 * What must hold when nothing moves any more: everything that was committed is on the disk, unless nobody lives.
 * Guardians look by themselves every now and then; nobody does here.
 *   BAD_LOOKFIRST the look at the flusher is not ordered after the commit
 *   BAD_NOLOOK    a flusher that leaves does not look again
 *   BAD_NOCLEAR   who reaps a dead flusher does not say that there is none
 *   BAD_POKELATE  a guardian reads its poke word after its work
 */
#ifndef OPS
#define OPS 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#define P 2
#define NOBODY 0
#define ID(i) ((i)+1)
byte end[P];                      /* how far the lanes have come */
byte durable;                     /* of all together */
byte flusher;
bit poked[P];                     /* the poke word is not what the guardian read */
bit asleep[P], dead[P], settled[P];
byte deaths;
#define ENDS (end[0]+end[1])
#define OTHER (1-me)
#define STEP(x) if :: atomic { !dead[me] -> x } :: dead[me] -> goto killed fi
/* a process dies as a whole; the kernel wakes who sleeps on its life */
proctype death() {
  if
  :: atomic { deaths<DEATHS -> deaths++; dead[0]=1; asleep[0]=0; asleep[1]=0 }
  :: atomic { deaths<DEATHS -> deaths++; dead[1]=1; asleep[0]=0; asleep[1]=0 }
  :: true
  fi
}

proctype member(byte me) {
  byte n; bit none;
  do
  :: n<OPS ->
     n++;
#ifdef BAD_LOOKFIRST
     STEP(none=(flusher==NOBODY));
     STEP(end[me]++);
#else
     STEP(end[me]++);                                                 /* lane.committed */
     STEP(none=(flusher==NOBODY));                                    /* rf_log_note */
#endif
     if
     :: none -> STEP(poked[me]=1); STEP(asleep[me]=0)                  /* rf_guardian_hurry */
     :: !none
     fi
  :: else -> break
  od;
killed: skip
}

proctype guardian(byte me) {
  byte seen, activity, now, who; bit mine, ticked;
  do
  ::
#ifndef BAD_POKELATE
     STEP(poked[me]=0);
#endif
     /* rf_sweep_all: settles the dead */
     if
     :: dead[OTHER] && !settled[OTHER] ->
#ifndef BAD_NOCLEAR
        STEP(if :: flusher==ID(OTHER) -> flusher=NOBODY :: else fi);
#endif
        STEP(settled[OTHER]=1)                                        /* reap.phase */
     :: else
     fi;
     /* tend_log */
     STEP(who=flusher);
     if
     :: who==ID(me) -> mine=1
     :: who!=ID(me) ->
        mine=0;
        if
        :: (who==NOBODY || dead[who-1]) && ENDS>durable ->
           STEP(if :: flusher==who -> flusher=ID(me); mine=1; ticked=0 :: else fi)
        :: else
        fi
     fi;
     if
     :: mine ->
        STEP(now=ENDS);
        if
        :: ticked && seen>durable -> STEP(durable=(seen>durable -> seen : durable))   /* log.durable */
        :: ticked && seen<=durable && activity==now ->
           STEP(if :: flusher==ID(me) -> flusher=NOBODY :: else -> mine=0 fi);        /* stop_flushing */
#ifndef BAD_NOLOOK
           if
           :: mine && ENDS!=activity -> STEP(if :: flusher==NOBODY -> flusher=ID(me) :: else fi)
           :: else
           fi
#endif
        :: else
        fi;
        atomic { seen=now; activity=now; ticked=1; now=0 }
     :: else -> atomic { seen=0; activity=0; ticked=0 }
     fi;
     atomic { who=0; mine=0 };
#ifdef BAD_POKELATE
     STEP(poked[me]=0);
#endif
     /* sleeps until it is poked or somebody dies; a flusher until its next tick */
     STEP(
       if
       :: flusher!=ID(me) && !poked[me] && !(dead[OTHER] && !settled[OTHER]) -> asleep[me]=1
       :: else
       fi);
end_asleep:
     !asleep[me]
  od;
killed: skip
}
proctype look() {
  timeout -> assert(durable==ENDS || (dead[0] && dead[1]))
}
init { atomic { run member(0); run member(1); run guardian(0); run guardian(1); run death(); run look() } }
