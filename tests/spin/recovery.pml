/*
 * Cold opens (recover.h): what a log holds, power cuts that lose what was not synced, processes of an earlier life
 * whose writes arrive late, cold opens that are killed anywhere. Life l writes batches into a segment of its own,
 * whose header says how much of the life before it counts. A batch is on the disk, or only in a cache that a power
 * cut may lose, or not there.
 * What must hold: what was acknowledged is recovered by every later life; what a life was built upon does not change
 * under it; no two lives that granted have the same incarnation; no epoch that anybody was told of comes again, and of
 * each it can be said whether it is in the log (rf_log_start, remember_gaps).
 *   BAD_SAMESEG  a life goes on in the segment it found: late writes of dying processes meet its own
 *   BAD_NOSYNC   what was read is not synced before it is built upon
 *   BAD_NOAFTER  the new segment does not say where the old one ended
 *   BAD_INCLATE  the incarnation is raised after the first grant
 *   BAD_INCSOFT  the incarnation is raised, but not durably
 *   BAD_EPOCHS   the epochs of a life go on right behind the end of the log
 *   BAD_BEGUN    they leave out what a life can have told, but not of one of which nothing is in the log
 *   BAD_FORGET   only the newest gap is remembered
 */
#ifndef LIVES
#define LIVES 3
#endif
#ifndef B
#define B 2            /* batches a life */
#endif
#define R 3            /* entries: the open epoch is at most R - 1 behind the durable one */
#ifndef CRASHES
#define CRASHES 3      /* of cold opens, besides the end of every life */
#endif
#define NONE 0
#define CACHED 1
#define SYNCED 2
#define AT(l,k) ((l)*(B+1)+(k))
byte cell[LIVES*(B+1)];          /* batch k = 1 .. B of life l */
byte owner[LIVES*(B+1)];         /* whose bytes they are (1 + life), where segments are shared */
byte seg[LIVES];                 /* the segment's header */
byte after[LIVES];               /* how many batches of the life before count */
byte begun[LIVES];               /* epochs up to here are of before: batch k is of epoch begun + k; in the segment's header */
byte behind[LIVES];              /* the last epoch of the log before; there too */
byte told[LIVES];                /* ghost: the greatest epoch that somebody can have been told of */
bit flight[LIVES*(B+1)];         /* computed, and perhaps written by somebody who is dying */
byte inc, incd;                  /* the store file: as read, and as it survives a power cut */
byte acked[LIVES];               /* ghost */
bit granted[32];                 /* ghost: incarnations in which something was granted */
byte crashes, life;
bit over;

/* a write of a process of an earlier life, whenever it comes */
proctype late() {
  byte l, k;
  do
  :: over -> break
  :: atomic { l<LIVES && flight[AT(l,1)] && cell[AT(l,1)]==NONE -> flight[AT(l,1)]=0; cell[AT(l,1)]=CACHED; owner[AT(l,1)]=l+1 }
#if B>1
  :: atomic { l<LIVES && flight[AT(l,2)] && (cell[AT(l,2)]==NONE || owner[AT(l,2)]!=l+1) ->
       assert(owner[AT(l,2)]==0 || owner[AT(l,2)]==l+1);   /* nobody's place but its own */
       flight[AT(l,2)]=0; cell[AT(l,2)]=CACHED; owner[AT(l,2)]=l+1 }
#endif
  :: atomic { l<LIVES-1 -> l++ }
  :: atomic { l>0 -> l-- }
  od
}

/* everything that is only cached may be lost or kept; the store file too */
inline power_cut() {
  l=0; do :: l<LIVES ->
    k=1; do :: k<=B ->
      if :: cell[AT(l,k)]==CACHED -> if :: cell[AT(l,k)]=NONE; owner[AT(l,k)]=0 :: cell[AT(l,k)]=SYNCED fi :: else fi; k++
    :: else -> break od;
    if :: seg[l]==CACHED -> if :: seg[l]=NONE :: seg[l]=SYNCED fi :: else fi; l++
  :: else -> break od; l=0; k=0;
  if :: inc=incd :: incd=inc fi
}
/* how much of life s counts: what the next segment says, or what is there without a gap */
inline count(s) {
  n=0; q=s+1;
  do :: q<=life && q<LIVES && seg[q]==NONE -> q++ :: else -> break od;
#ifdef BAD_NOAFTER
  q=LIVES;
#endif
  if
  :: q<LIVES && q<=life && seg[q]!=NONE -> n=after[q];
     k=1; do :: k<=n -> assert(cell[AT(s,k)]!=NONE); k++ :: else -> break od; k=0   /* what was built upon is there */
  :: else -> do :: n<B && cell[AT(s,n+1)]!=NONE -> n++ :: else -> break od
  fi; q=0
}

proctype store() {
  byte l, k, n, q, s, prev; bit g, lost;
  /* life 0 begins in a new store */
  seg[0]=SYNCED; inc=1; incd=1;
#ifdef BAD_INCLATE
  inc=0; incd=0;
#endif
live:
  told[life]=begun[life]+R-1;
  /* grants, then batches: acknowledged, only written, or in flight when the end comes */
  if
  :: atomic { true -> assert(!granted[inc]); granted[inc]=1; g=1 }
  :: true
  fi;
#ifdef BAD_INCLATE
  if :: crashes<CRASHES && life+1<LIVES -> crashes++; goto cold :: skip fi;
  atomic { inc++; incd=inc; g=0 };
#endif
  k=1;
  do
  :: k<=B && (k==1 || cell[AT(life,k-1)]!=NONE) ->
     if
     :: atomic { cell[AT(life,k)]==NONE && (k==1 || cell[AT(life,k-1)]==SYNCED) -> cell[AT(life,k)]=SYNCED; owner[AT(life,k)]=life+1; acked[life]=k; told[life]=begun[life]+k+R-1; k++ }   /* log.written, log.durable */
     :: atomic { cell[AT(life,k)]==NONE -> cell[AT(life,k)]=CACHED; owner[AT(life,k)]=life+1; k++ }                  /* written without being acknowledged */
     :: atomic { cell[AT(life,k)]==NONE -> flight[AT(life,k)]=1 }; break                                             /* log.before_write */
     :: break
     :: atomic { cell[AT(life,k)]!=NONE -> k++ }
     fi
  :: else -> break
  od;
#ifdef BAD_SAMESEG
  if :: k<=B -> flight[AT(life,k)]=1 :: else fi;
#endif
  k=0;
  if :: life+1==LIVES -> goto end_of :: else fi;
cold:
  /* the end of a life: of all processes, or of the machine */
  if :: atomic { power_cut() } :: skip fi;
open:
  /* 2: read, newest segment that is there last */
  s=life; do :: s>0 && seg[s]==NONE -> s-- :: else -> break od;
  atomic { l=0; do :: l<s -> if :: seg[l]!=NONE -> count(l);
#ifndef BAD_NOAFTER
                                 assert(n>=acked[l])
#else
                                 assert(n==after[l+1])
#endif
                             :: else fi; l++ :: else -> break od; l=0 };
  atomic { count(s); assert(n>=acked[s]); prev=n };
#ifndef BAD_NOSYNC
  /* 4: recover.synced */
  atomic { k=1; do :: k<=prev -> if :: cell[AT(s,k)]==CACHED -> cell[AT(s,k)]=SYNCED :: else fi; k++ :: else -> break od; k=0 };
#endif
  if :: crashes<CRASHES -> crashes++; goto cold :: skip fi;
#ifndef BAD_INCLATE
  /* 5: recover.store_copy */
  atomic { inc++;
#ifndef BAD_INCSOFT
    incd=inc
#endif
  };
#endif
  if :: crashes<CRASHES -> crashes++; goto cold :: skip fi;
  /* 6: recover.segment */
#ifdef BAD_SAMESEG
  if :: crashes<CRASHES -> crashes++; goto cold :: skip fi;
  goto same;
#endif
  atomic { life++; after[life]=prev; seg[life]=SYNCED;
           behind[life]=(prev>0 -> begun[s]+prev : behind[s]);
#ifdef BAD_EPOCHS
           begun[life]=behind[life];
#else
           begun[life]=behind[life];
#ifndef BAD_BEGUN
           if :: begun[s]>begun[life] -> begun[life]=begun[s] :: else fi;     /* rf_log_reader_shape: reached */
#endif
           begun[life]=begun[life]+R;                                         /* rf_log_used */
#endif
           l=s+1; do :: l<life -> seg[l]=NONE; l++ :: else -> break od; l=0;
           do :: l<life ->
             assert(begun[life]>=told[l]);                                    /* no epoch comes twice */
             if :: l==s -> n=prev :: else -> if :: told[l]!=0 -> count(l) :: else fi fi;
             k=1; do :: begun[l]+k<=told[l] ->
               q=1; g=0; do :: q<=life ->
#ifdef BAD_FORGET
                 if :: q==life && begun[l]+k>behind[q] && begun[l]+k<=begun[q] -> g=1 :: else fi;
#else
                 if :: seg[q]!=NONE && begun[l]+k>behind[q] && begun[l]+k<=begun[q] -> g=1 :: else fi;   /* rf_log_lost */
#endif
                 q++ :: else -> break od;
               assert(g==(k>n)); k++                                          /* rf_sync tells */
             :: else -> break od; l++
           :: else -> break od;
           l=0; k=0; q=0; g=0; s=0; prev=0; n=0 };
  if :: crashes<CRASHES && life+1<LIVES -> crashes++; goto cold :: skip fi;
  goto live;
#ifdef BAD_SAMESEG
same:
  /* the same segment, behind what was found */
  atomic { k=prev+1; l=0;
    if :: k<=B -> assert(cell[AT(s,k)]==NONE); cell[AT(s,k)]=SYNCED; owner[AT(s,k)]=LIVES+1; acked[s]=k :: else fi; k=0 };
  if :: crashes<CRASHES -> crashes++; goto cold :: skip fi;
#endif
end_of: over=1
}
init { atomic { run store(); run late() } }
