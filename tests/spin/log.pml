/*
 * Batches (log.c, batch.c, log_entry.h): lanes that wrap, helpers that compute, publish and write the same batch, die,
 * stop or are late anywhere, several batches in flight, the ring of entries whose words are agreed by compare-and-swap
 * from the round before.
 * What must hold: a batch has one value and one place; a committed record is in exactly the batch of its epoch; what is
 * acknowledged is on the disk; the place of the next batch can always be found.
 *   BAD_NOHEAD    the head is not looked at again after copying
 *   BAD_NODUR     durable is not looked at again after copying
 *   BAD_NOCHK     neither
 *   BAD_RING      sealing goes on until the ring of entries is full: the last durable end is overwritten
 *   BAD_NAME      done is stored whatever epoch the entry speaks of
 *   BAD_PUBLATE   done is said before end and hash are published
 *   BAD_HEADLATE  the owner overwrites before it stores the new head
 *   BAD_OWNBYTES  what is not a function of the lanes (durable when sealed) is not agreed upon
 *   BAD_ADMIT     a lane's space is used again before its records are durable
 *   BAD_TELL      how far a lane was walked is said before the batch is durable
 */
#ifndef L
#define L 3        /* records a lane */
#endif
#ifndef R
#define R 3        /* entries */
#endif
#ifndef H
#define H 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef NL
#define NL 1
#endif
#ifndef LC
#define LC 2       /* records that a lane has room for */
#endif
#define EM (R+NL*L+3)
#define NONE 255
byte G=R+1, durable=R;                   /* epochs 1 .. R are of before, and done */
byte le[NL], lo[NL], head[NL], walked[NL];
byte cpos[NL*LC], cep[NL*LC];            /* cell: endless position, epoch */
byte lagt[R], lagv[R];                   /* entry words: epoch that each speaks of, and value */
byte endt[R], endv[R];
byte dont[R];
byte disk[EM], place[EM];
byte deaths, fin;
byte lastep[NL];                         /* ghost: only to avoid endless empty epochs */
#ifdef BAD_RING
#define CANSEAL (G-durable < R+1 && G<EM-1)
#else
#define CANSEAL (G-durable < R-1 && G<EM-1)
#endif
#define LAST(i) (lastep[i]==G)
#if NL==1
#define OPEN LAST(0)
#else
#define OPEN (LAST(0)||LAST(1))
#endif

proctype owner(byte me) {
  byte n, g, e, o, h; bit got;
  do
  :: n<L ->
     o=lo[me];
     if
     :: o-head[me]>=LC ->                                                  /* rf_log_admit: nothing is overwritten that is not durable */
#ifdef BAD_ADMIT
        h=head[me]+1;
#else
        atomic { durable>=cep[me*LC+head[me]%LC] -> h=head[me]+1 };
#endif
#ifndef BAD_HEADLATE
        head[me]=h;                                                        /* lane.head */
#endif
     :: else -> h=head[me]
     fi;
     atomic { g=G };
     cpos[me*LC+o%LC]=o;
     cep[me*LC+o%LC]=g;
     do
     :: e=le[me];
        if
        :: e>g -> g=G; cep[me*LC+o%LC]=g
        :: else -> atomic { if :: le[me]==e -> le[me]=g; lo[me]=o+1; lastep[me]=g; assert(durable<g && disk[g]==NONE); got=1 :: else fi };   /* lane.committed */
           if :: got -> got=0; break :: else fi
        fi
     od;
#ifdef BAD_HEADLATE
     head[me]=h;
#endif
     if
     :: atomic { durable>=g -> assert(disk[g]&(1<<(me*L+o))) }             /* acknowledged */
     :: true                                                               /* not waited for */
     fi;
     atomic { n++; g=0; e=0; o=0; h=0 }
  :: else -> break
  od;
  fin++
}

#define MAYDIE :: atomic { deaths<DEATHS -> deaths++; goto killed }
#define STEP(x) if :: atomic { true -> x } MAYDIE fi
#define NEEDS(E) (E<G && E<=durable+2 && dont[(E)%R]!=(E))
/* rf_entry_agree: from the round before only */
#define AGREE(t,v,E,mine) if :: t[(E)%R]==(E) -> mine=v[(E)%R] :: t[(E)%R]==(E)-R -> t[(E)%R]=(E); v[(E)%R]=mine :: else -> goto again fi

/* rf_batch_compose: X is the batch, prev its place; mask and c come out, or it is late */
inline compose(X) {
  STEP(if :: durable>=X -> goto again :: else -> own=X-durable fi);
#ifndef BAD_OWNBYTES
  STEP(AGREE(lagt,lagv,X,own));                                            /* log.agreed */
#endif
  i=0;
  do
  :: i<NL ->
     STEP(xe=le[i]; xo=lo[i]);
     if :: xe>X -> i++ :: else -> STEP(if :: le[i]==xe && lo[i]==xo -> le[i]=X+1 :: else fi) fi; xe=0; xo=0   /* log.raised */
  :: else -> break
  od;
  i=0; mask=0; c=0;
  do
  :: i<NL ->
     STEP(h=head[i]);
     STEP(if :: walked[i]>h -> h=walked[i] :: else fi);
     STEP(o=lo[i]);
     k=h; lost=0; hint[i]=h;
     do
     :: k<o && !lost ->
        STEP(if :: cpos[i*LC+k%LC]!=k -> lost=1
                :: cpos[i*LC+k%LC]==k && cep[i*LC+k%LC]==X -> mask=mask|(1<<(i*L+k)); c++
                :: else fi;
             if :: cpos[i*LC+k%LC]==k && cep[i*LC+k%LC]<=X && hint[i]==k -> hint[i]=k+1 :: else fi; k++)
     :: else -> break
     od;                                                                   /* log.copied */
#ifndef BAD_NOHEAD
#ifndef BAD_NOCHK
     if :: atomic { head[i]>h -> goto again } :: atomic { head[i]<=h -> skip } fi;
#endif
#endif
     i++; h=0; o=0; k=0; lost=0
  :: else -> break
  od; i=0;
#ifndef BAD_NODUR
#ifndef BAD_NOCHK
  if :: atomic { durable>=X -> goto again } :: atomic { durable<X -> skip } fi;
#endif
#endif
}

#define CLEAR hint[0]=0; hint[NL-1]=0; E=0; i=0; h=0; o=0; k=0; mask=0; prev=0; c=0; xe=0; xo=0; lost=0; own=0; d=0; nend=0
proctype helper() {
  byte E, i, h, o, k, mask, prev, c, xe, xo, own, d, nend, hint[NL]; bit lost;
start:
  do
  :: atomic { fin==NL && durable+1==G && !OPEN -> goto end_of }
  :: atomic { OPEN && CANSEAL -> G=G+1 }                                   /* log.sealed */
  :: atomic { NEEDS(durable+1) -> E=durable+1 }; break
  :: atomic { NEEDS(durable+2) -> E=durable+2 }; break
  :: atomic { durable+1<G && dont[(durable+1)%R]==durable+1 -> durable++; assert(disk[durable]!=NONE) }   /* move_durable */
  od;
  /* find_before: from the end of the last durable one on */
  STEP(d=durable);
  STEP(if :: endt[d%R]==d -> prev=endv[d%R]
          :: endt[d%R]!=d && durable==d -> assert(false)                   /* the place of the next batch is nowhere any more */
          :: else -> goto again fi);
  if
  :: E==d+2 ->
     if
     :: atomic { endt[(d+1)%R]==d+1 -> prev=endv[(d+1)%R] }
     :: atomic { endt[(d+1)%R]!=d+1 -> skip };
        compose(d+1);
        nend=prev+c+1;
        STEP(AGREE(endt,endv,d+1,nend); assert(nend==prev+c+1));           /* published, and left to others to write */
        prev=nend; nend=0
     fi
  :: E==d+1
  :: else -> goto again
  fi;
  compose(E);                                                              /* log.composed */
#ifdef BAD_PUBLATE
  STEP(assert(disk[E]==NONE || (disk[E]==mask && place[E]==prev+own)); disk[E]=mask; place[E]=prev+own);
  STEP(if :: dont[E%R]==E-R -> dont[E%R]=E :: else fi);
#endif
  nend=prev+c+1;
  STEP(AGREE(endt,endv,E,nend); assert(nend==prev+c+1));                   /* log.published: a batch has one value */
#ifndef BAD_PUBLATE
  STEP(assert(disk[E]==NONE || (disk[E]==mask && place[E]==prev+own)); disk[E]=mask; place[E]=prev+own);   /* log.written, whenever that is */
#ifdef BAD_NAME
  STEP(dont[E%R]=endt[E%R]);
#else
  STEP(if :: dont[E%R]==E-R -> dont[E%R]=E :: else fi);                    /* log.done */
#endif
#endif
  STEP(if :: durable+1<G && dont[(durable+1)%R]==durable+1 -> durable++; assert(disk[durable]!=NONE) :: else fi);   /* log.before_durable */
  do                                                                       /* rf_batcher_tell */
  :: i<NL ->
#ifdef BAD_TELL
     STEP(if :: hint[i]>walked[i] -> walked[i]=hint[i] :: else fi);
#else
     STEP(if :: durable>=E && hint[i]>walked[i] -> walked[i]=hint[i] :: else fi);
#endif
     i++
  :: else -> break
  od;
again: atomic { CLEAR; goto start };
killed: atomic { CLEAR; goto start };                                      /* another process takes its place */
end_of: skip
}
init { atomic {
  byte z=0; do :: z<EM -> disk[z]=NONE; z++ :: else -> break od;
  z=1; do :: z<=R -> lagt[z%R]=z; endt[z%R]=z; dont[z%R]=z; z++ :: else -> break od; z=0;
  run owner(0);
#if NL>1
  run owner(1);
#endif
  run helper();
#if H>1
  run helper();
#endif
} }
