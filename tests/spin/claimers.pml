/*
 * Waiting for shards (claim.c, rf_wake_claimers, reap.c: clear_waiting): claimers that sleep on the run's claim word,
 * holders that give a shard back and wake one of them, a sweep that gives back the leases of the dead. Everybody may
 * die before every step, whoever reaps and sweeps too; a claimer may stop waiting, or be refused when it is woken.
 * What must hold when nothing moves any more: nobody sleeps while a shard is there to be claimed.
 *   BAD_NONAME     a claimer does not name the run that it waits for: a wake dies with it
 *   BAD_NOWAKERUN  who gives back does not name the run whose claimers it will wake
 *   BAD_CLEARFIRST the reaper forgets those names before it has woken (two deaths)
 *   BAD_NOWORD     the claim word does not change
 *   BAD_WORDLATE   it changes after the wake
 *   BAD_SEENLATE   a claimer reads it after it looked for shards
 *   BAD_BITLATE    the shard is shown as claimable after the wake
 *   BAD_NOPASS     who was woken and is refused does not wake another
 */
#ifndef C
#define C 2
#endif
#ifndef S
#define S 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef REFUSALS
#define REFUSALS 1
#endif
#ifndef GIVEUPS
#define GIVEUPS 1
#endif
#define M (C+S)                   /* members: claimers, then the holders of the shards */
#define NOBODY 255
byte word;                        /* run->claim */
bit claimable[S];
byte owner[S];                    /* whose lease it is */
bit listed[C], asleep[C];
bit waits[C];                     /* the run that it waits for is named */
bit wakes[M], sweeper_wakes;      /* the run whose claimers it will wake is named */
bit dead[M], reaped[M];
byte deaths, refusals, giveups;

#define MAYDIE if :: atomic { deaths<DEATHS -> deaths++; goto killed } :: skip fi
#define ANYASLEEP (asleep[0] || asleep[1] || asleep[C-1])
#define ANYLISTED (listed[0] || listed[1] || listed[C-1])
#define CHANGE word=word+1                                    /* wake.changed */
inline wake_one() { atomic { if :: asleep[0] -> asleep[0]=0 :: asleep[1] -> asleep[1]=0 :: asleep[C-1] -> asleep[C-1]=0
                                :: !ANYASLEEP fi } }
inline wake_all() { atomic { asleep[0]=0; asleep[1]=0; asleep[C-1]=0 } }
/* rf_wake_claimers, of one: the word, then the waiters */
#ifdef BAD_NOWORD
#define WAKE if :: ANYLISTED -> MAYDIE; wake_one() :: else fi
#else
#ifdef BAD_WORDLATE
#define WAKE if :: ANYLISTED -> MAYDIE; wake_one() :: else fi; MAYDIE; CHANGE
#else
#define WAKE CHANGE; MAYDIE; if :: ANYLISTED -> MAYDIE; wake_one() :: else fi   /* wake.done */
#endif
#endif

proctype claimer(byte me) {
  byte seen, mine=NOBODY; bit refused, last;
#ifndef BAD_NONAME
  waits[me]=1;
  MAYDIE;
#endif
  listed[me]=1;                                               /* claim.listed, claim.summed */
  do
  :: MAYDIE;
#ifndef BAD_SEENLATE
     seen=word;
     MAYDIE;
#endif
     if
     :: atomic { refusals<REFUSALS -> refusals++; refused=1 }
     :: atomic { claimable[0] -> claimable[0]=0; owner[0]=me; mine=0 }
     :: atomic { S>1 && claimable[S-1] -> claimable[S-1]=0; owner[S-1]=me; mine=S-1 }
     :: atomic { !claimable[0] && !claimable[S-1] -> skip }   /* claim.none */
     fi;
     if :: refused || mine!=NOBODY || last -> break :: else fi;
     MAYDIE;
#ifdef BAD_SEENLATE
     seen=word;
     MAYDIE;
#endif
     atomic { if :: word==seen -> asleep[me]=1 :: else fi };  /* the kernel compares, then queues */
end_asleep:
     if
     :: atomic { !asleep[me] -> skip }
     :: atomic { asleep[me] && giveups<GIVEUPS -> asleep[me]=0; giveups++; last=1 }   /* its time is over: one more look */
     :: atomic { asleep[me] && deaths<DEATHS -> deaths++; goto killed }
     fi                                                       /* claim.woken */
  od;
  MAYDIE;
  listed[me]=0;                                               /* claim.unlisted */
#ifndef BAD_NOPASS
  if :: refused -> MAYDIE; WAKE :: else fi;
#endif
  MAYDIE;
  waits[me]=0;
  MAYDIE;                                                     /* or with the lease that it got */
  goto end_of;
killed: atomic { asleep[me]=0; dead[me]=1 };
end_of: skip
}

/* gives its shard back: released, split, unparked or expired, it is all the same to who waits */
proctype holder(byte me, s) {
#ifndef BAD_NOWAKERUN
  wakes[me]=1;
#endif
  MAYDIE;
#ifdef BAD_BITLATE
  WAKE;
  MAYDIE;
#endif
  atomic { owner[s]=NOBODY; claimable[s]=1 };                 /* lane.committed .. directory.bit: redone if it died between */
#ifndef BAD_BITLATE
  MAYDIE;
  WAKE;
#endif
  MAYDIE;
  wakes[me]=0;
  goto end_of;
killed: dead[me]=1;
end_of: skip
}

inline clear_waiting() {
  if
  :: d<C && waits[d] ->
     listed[d]=0;                                             /* reap.unlisted */
#ifdef BAD_CLEARFIRST
     waits[d]=0;
#endif
     MAYDIE; CHANGE; MAYDIE; wake_all(); MAYDIE;
     waits[d]=0
  :: else
  fi;
  if
  :: wakes[d] ->
#ifdef BAD_CLEARFIRST
     wakes[d]=0;
#endif
     MAYDIE; CHANGE; MAYDIE; wake_all(); MAYDIE;
     wakes[d]=0
  :: else
  fi
}

/* reaps, then gives up the leases of the dead; one that dies is followed by another, who settles it first */
proctype guardian() {
  byte d, s;
start:
  if :: sweeper_wakes -> CHANGE; wake_all(); sweeper_wakes=0 :: else fi;
end_watching:
  do
  :: atomic { dead[0] && !reaped[0] -> d=0 }; clear_waiting(); reaped[0]=1   /* reap.phase */
  :: atomic { dead[1] && !reaped[1] -> d=1 }; clear_waiting(); reaped[1]=1
  :: atomic { dead[2] && !reaped[2] -> d=2 }; clear_waiting(); reaped[2]=1
  :: atomic { dead[M-2] && !reaped[M-2] -> d=M-2 }; clear_waiting(); reaped[M-2]=1
  :: atomic { dead[M-1] && !reaped[M-1] -> d=M-1 }; clear_waiting(); reaped[M-1]=1
  :: atomic { owner[0]!=NOBODY && reaped[owner[0]] -> s=0 }; goto lose
  :: atomic { owner[S-1]!=NOBODY && reaped[owner[S-1]] -> s=S-1 }; goto lose
  od;
lose:
  sweeper_wakes=1;
  MAYDIE;
  atomic { owner[s]=NOBODY; claimable[s]=1 };                 /* sweep: an ordinary operation */
  MAYDIE;
  WAKE;
  MAYDIE;
  sweeper_wakes=0;
  goto start;
killed: atomic { d=0; s=0; goto start }
}

/* from here on nobody dies, gives up or is refused: otherwise those who may are never at rest */
proctype calm() { atomic { deaths=DEATHS; refusals=REFUSALS; giveups=GIVEUPS } }
proctype look() {
  timeout -> assert(!(ANYASLEEP && (claimable[0] || claimable[S-1])))
}
init { atomic {
  owner[0]=C; owner[S-1]=M-1;
  run claimer(0); run claimer(1);
#if C>2
  run claimer(2);
#endif
  run holder(C,0);
#if S>1
  run holder(C+1,1);
#endif
  run guardian(); run calm(); run look() } }
