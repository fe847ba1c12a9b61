PRAGMA application_id = 1668249209;
PRAGMA user_version = 1;
CREATE TABLE cells (
  desk TEXT NOT NULL,
  space TEXT NOT NULL,
  line INTEGER NOT NULL CHECK (line >= 0),
  name TEXT NOT NULL,
  counters TEXT NOT NULL,
  seen TEXT NOT NULL,
  PRIMARY KEY (desk, space, line)
) STRICT, WITHOUT ROWID;
INSERT INTO "cells" VALUES('','',0,'g2:0','[1,30,30,4,7,0,2,6,0,6]','[[0,8],[1,5]]');
INSERT INTO "cells" VALUES('','',1,'g2:1','[2,24,24,4,3,4,0,1,2,6]','[[1,8],[0,4]]');
INSERT INTO "cells" VALUES('south','',0,'g2:0','[1,40,30,5,13,0,3,12,0,0]','[[1,12],[0,8]]');
INSERT INTO "cells" VALUES('south','',1,'g2:1','[2,31,24,5,9,4,1,7,2,0]','[[1,15],[0,4],["red",1]]');
CREATE TABLE counters (
  cell TEXT NOT NULL,
  source TEXT NOT NULL,
  arm TEXT NOT NULL,
  labels INTEGER NOT NULL CHECK (labels >= 1),
  right INTEGER NOT NULL CHECK (right BETWEEN 0 AND labels),
  PRIMARY KEY (cell, source, arm)
) STRICT, WITHOUT ROWID;
INSERT INTO "counters" VALUES('g2:0','','a',4,2);
INSERT INTO "counters" VALUES('g2:0','','b',3,3);
INSERT INTO "counters" VALUES('g2:0','client/a','b',4,3);
INSERT INTO "counters" VALUES('g2:0','south','a',1,1);
INSERT INTO "counters" VALUES('g2:0','south','b',6,6);
INSERT INTO "counters" VALUES('g2:1','','a',4,0);
INSERT INTO "counters" VALUES('g2:1','','b',3,1);
INSERT INTO "counters" VALUES('g2:1','client/a','south',4,2);
INSERT INTO "counters" VALUES('g2:1','south','a',1,1);
INSERT INTO "counters" VALUES('g2:1','south','b',6,6);
CREATE TABLE desks (
  desk TEXT PRIMARY KEY,
  slot INTEGER NOT NULL CHECK (slot >= 0),
  oldest INTEGER NOT NULL CHECK (oldest >= 1),
  following INTEGER NOT NULL CHECK (following >= oldest),
  doubts TEXT NOT NULL,
  latest TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "desks" VALUES('',54,1,13,'{"":[0,0,0,0]}','[54,1]');
INSERT INTO "desks" VALUES('south',43,1,21,'{"":[0,0,0,0]}','null');
CREATE TABLE folded (
  cell TEXT NOT NULL,
  source TEXT NOT NULL,
  arm TEXT NOT NULL,
  labels INTEGER NOT NULL CHECK (labels >= 1),
  right INTEGER NOT NULL CHECK (right BETWEEN 0 AND labels),
  PRIMARY KEY (cell, source, arm)
) STRICT, WITHOUT ROWID;
CREATE TABLE folded_asked (
  cell TEXT NOT NULL,
  peer TEXT NOT NULL,
  answers INTEGER NOT NULL CHECK (answers >= 1),
  labels INTEGER NOT NULL CHECK (labels BETWEEN 0 AND answers),
  PRIMARY KEY (cell, peer)
) STRICT, WITHOUT ROWID;
CREATE TABLE lot_labels (
  lot INTEGER NOT NULL REFERENCES lots,
  part INTEGER NOT NULL CHECK (part >= 0),
  labels INTEGER NOT NULL CHECK (labels >= 1),
  rows BLOB NOT NULL CHECK (length(rows) = 4 * labels),
  truths TEXT NOT NULL,
  right BLOB NOT NULL CHECK (length(right) = labels),
  PRIMARY KEY (lot, part)
) STRICT, WITHOUT ROWID;
INSERT INTO "lot_labels" VALUES(1,0,9,X'060000000000000005000000070000000100000008000000040000000300000002000000','[1,1,1,1,1,0,1,0,0]',X'000000000001000001');
INSERT INTO "lot_labels" VALUES(2,0,5,X'0200000005000000070000000400000000000000','[0,1,1,0,0]',X'0101010101');
INSERT INTO "lot_labels" VALUES(3,0,3,X'040000000100000000000000','[1,0,0]',X'000101');
CREATE TABLE lots (
  lot INTEGER PRIMARY KEY CHECK (lot >= 1),
  source TEXT NOT NULL,
  id TEXT NOT NULL,
  digest TEXT NOT NULL,
  slot INTEGER NOT NULL CHECK (slot >= 0),
  rows INTEGER NOT NULL CHECK (rows >= 1),
  space TEXT NOT NULL,
  kinds TEXT NOT NULL,
  which BLOB NOT NULL CHECK (length(which) = 4 * rows),
  contexts BLOB NOT NULL CHECK (length(contexts) % (8 * rows) = 0),
  predictions TEXT NOT NULL,
  answers TEXT,
  helped TEXT,
  is_open INTEGER NOT NULL CHECK (is_open IN (0, 1)),
  UNIQUE (source, id)
) STRICT;
INSERT INTO "lots" VALUES(1,'','0','',1,9,'','[[1,"g2:0","explore","a",0.0,""],[5,"g2:0","explore","b",0.0,""],[1048577,"g2:1","explore","a",0.0,""],[1048581,"g2:1","explore","b",0.0,""]]',X'000000000200000000000000020000000300000002000000000000000300000001000000',X'1856EBB5B1B1C03F036A6A7E6B4FED3FA47901A5E456DE3FFF19431C5796E23FE87B0D441261E33F7E9159530A15ED3F32281312E707DE3F74F4EF1C07A0E13F4429EE1F128BC83F','[0,0,0,1,0,0,0,0,0]',NULL,NULL,1);
INSERT INTO "lots" VALUES(2,'','4','',10,8,'','[[1,"g2:0","explore","a",0.0,""],[5,"g2:0","explore","b",0.0,""],[8,"g2:0","train","south",0.01,"south"],[1048577,"g2:1","explore","a",0.0,""],[1048581,"g2:1","explore","b",0.0,""]]',X'0100000003000000000000000400000001000000040000000100000002000000',X'E8B020643AC6CB3F932BB09A36E5EE3FFA553B7613EADB3F41C06BB7800DE43F1C835E630344D33F067B55A3553BE03F3A99976408B2D83FD6D745445175D63F','[0,1,0,1,0,1,1,1]',NULL,'{"7":["c","7c65c1e582e2e662f728b4fa42485e3a:7",0]}',1);
INSERT INTO "lots" VALUES(3,'','9','',18,6,'','[[1,"g2:0","explore","a",0.0,""],[5,"g2:0","explore","b",0.0,""],[8,"g2:0","train","south",0.01,"south"],[1048577,"g2:1","explore","a",0.0,""],[1048581,"g2:1","explore","b",0.0,""],[1048584,"g2:1","train","south",0.01,"south"]]',X'050000000200000000000000010000000300000004000000',X'F03544147A9EE93FC0402DAF0145DA3FF46E52A0474CC33F4CC96A3B1DCFD23F7B29A971F199E83F70C5791CB5EDEB3F','[0,0,1,1,0,0]',NULL,'{"0":["c","9a164106cf6a659eb4862b21fb97d435:0",0],"1":["c","9a164106cf6a659eb4862b21fb97d435:1",0]}',1);
INSERT INTO "lots" VALUES(4,'','10','',24,1,'','[[8,"g2:0","train","south",0.01,"south"]]',X'00000000',X'B85DBF0DF42DD83F','[0]',NULL,'{"0":["c","50f244556f25e2a25a92118719c78df4:0",0]}',1);
INSERT INTO "lots" VALUES(5,'','13','',25,9,'','[[8,"g2:0","train","south",0.01,"south"],[9,"g2:0","explore","south",0.01,"south"],[1048584,"g2:1","train","south",0.01,"south"]]',X'000000000000000001000000020000000100000001000000020000000100000002000000',X'20B4BAFCBE10A03FC4F88A2FE843C93FE038552AA01BDA3FB4B10D59F288E33F8C25091B54FEC33FE074B6FE25BAA53F27F85B89D8C4EB3FBEAEE19ACC15D43F57A58D8856ADEE3F','[0,1,1,1,1,1,0,1,0]',NULL,'{"0":["c","9ca5499d004ae545a0116be5ab0c1681:0",0],"1":["c","9ca5499d004ae545a0116be5ab0c1681:1",0],"2":["d","9ca5499d004ae545a0116be5ab0c1681:2",0],"3":["c","9ca5499d004ae545a0116be5ab0c1681:3",0],"4":["d","9ca5499d004ae545a0116be5ab0c1681:4",0],"5":["d","9ca5499d004ae545a0116be5ab0c1681:5",0],"6":["c","9ca5499d004ae545a0116be5ab0c1681:6",0],"7":["d","9ca5499d004ae545a0116be5ab0c1681:7",0],"8":["c","9ca5499d004ae545a0116be5ab0c1681:8",0]}',1);
INSERT INTO "lots" VALUES(6,'','18','',34,9,'','[[1,"g2:0","explore","a",0.0,""],[5,"g2:0","explore","b",0.0,""],[8,"g2:0","train","south",0.01,"south"],[9,"g2:0","explore","south",0.01,"south"],[1048577,"g2:1","explore","a",0.0,""],[1048581,"g2:1","explore","b",0.0,""],[1048584,"g2:1","train","south",0.01,"south"]]',X'000000000400000005000000060000000100000002000000030000000300000006000000',X'8E147353FD5CD13F4599E1661B4CE43FC056F3D05EE6E63F1D50346D48F7ED3F6687D27F1CFFDB3FC8442B2CE386D03F822F63543D64D33F04771770ABB0D53FE62CA9398B3AE93F','[0,0,0,0,0,1,1,0,1]',NULL,'{"3":["c","1759edc372ae22448b0163c1cd9d2b7d:3",0],"5":["c","1759edc372ae22448b0163c1cd9d2b7d:5",0],"6":["d","1759edc372ae22448b0163c1cd9d2b7d:6",0],"7":["d","1759edc372ae22448b0163c1cd9d2b7d:7",0],"8":["c","1759edc372ae22448b0163c1cd9d2b7d:8",0]}',1);
CREATE TABLE outbox (
  peer TEXT NOT NULL,
  id TEXT NOT NULL,
  label TEXT NOT NULL,
  PRIMARY KEY (peer, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE site (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  name TEXT NOT NULL,
  shape TEXT NOT NULL,
  starts INTEGER NOT NULL CHECK (starts >= 0)
) STRICT;
INSERT INTO "site" VALUES(1,'north','arm: a
arm: b
arm: south
cells: 2 slices per dimension
dimensions: 1
preset: cos
forgets: nothing',1);
CREATE TABLE tickets (
  desk TEXT NOT NULL,
  ticket INTEGER NOT NULL CHECK (ticket >= 1),
  source TEXT NOT NULL,
  id TEXT NOT NULL,
  digest TEXT NOT NULL,
  slot INTEGER NOT NULL CHECK (slot >= 0),
  cell TEXT NOT NULL,
  code INTEGER NOT NULL CHECK (code >= 0),
  phase TEXT NOT NULL CHECK (phase IN ('train', 'explore', 'exploit', 'serve', 'recall')),
  arm TEXT NOT NULL,
  function TEXT NOT NULL,
  price REAL NOT NULL,
  space TEXT NOT NULL,
  context TEXT NOT NULL,
  prediction TEXT,
  answer TEXT,
  peer TEXT NOT NULL,
  peer_ticket TEXT,
  width INTEGER NOT NULL,
  truth TEXT,
  is_right INTEGER CHECK (is_right IN (0, 1)),
  CHECK ((truth IS NULL) = (is_right IS NULL)),
  PRIMARY KEY (desk, ticket),
  UNIQUE (source, id)
) STRICT, WITHOUT ROWID;
INSERT INTO "tickets" VALUES('',1,'client/a','one0','',43,'g2:0',9,'explore','south','c',0.01,'','[0.0]','0','0','south','4d2b9deb1beb37117d41e602eece328b',0,NULL,NULL);
INSERT INTO "tickets" VALUES('',2,'client/a','one1','',44,'g2:0',6,'exploit','b','b',0.0,'','[0.08333333333333333]','0','0','',NULL,0,'1',0);
INSERT INTO "tickets" VALUES('',3,'client/a','one2','',45,'g2:0',6,'exploit','b','b',0.0,'','[0.16666666666666666]','0','0','',NULL,0,'0',1);
INSERT INTO "tickets" VALUES('',4,'client/a','one3','',46,'g2:0',6,'exploit','b','b',0.0,'','[0.25]','1','1','',NULL,0,NULL,NULL);
INSERT INTO "tickets" VALUES('',5,'client/a','one4','',47,'g2:0',6,'exploit','b','b',0.0,'','[0.3333333333333333]','0','0','',NULL,0,'0',1);
INSERT INTO "tickets" VALUES('',6,'client/a','one5','',48,'g2:0',6,'exploit','b','b',0.0,'','[0.4166666666666667]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('',7,'client/a','one6','',49,'g2:1',1048585,'explore','south','d',0.01,'','[0.5]','0','0','south','49a3e80e966e12778c1745a79a6a5f92',0,NULL,NULL);
INSERT INTO "tickets" VALUES('',8,'client/a','one7','',50,'g2:1',1048585,'explore','south','d',0.01,'','[0.5833333333333334]','1','1','south','2f1205544a5308cc3dfabc08935ddd72',0,'1',1);
INSERT INTO "tickets" VALUES('',9,'client/a','one8','',51,'g2:1',1048585,'explore','south','d',0.01,'','[0.6666666666666666]','1','1','south','adc0da7a16febaa011af923d79fdef7c',0,'0',0);
INSERT INTO "tickets" VALUES('',10,'client/a','one9','',52,'g2:1',1048585,'explore','south','d',0.01,'','[0.75]','1','1','south','d67e55fd642bfa42aef9c00b8a64c1b9',0,NULL,NULL);
INSERT INTO "tickets" VALUES('',11,'client/a','one10','',53,'g2:1',1048585,'explore','south','d',0.01,'','[0.8333333333333334]','1','1','south','6b5f5241f323ca74d344749096fd35d0',0,'0',0);
INSERT INTO "tickets" VALUES('',12,'client/a','one11','',54,'g2:1',1048585,'explore','south','d',0.01,'','[0.9166666666666666]','1','1','south','5b7c709acb175a5afb82860deabca8d0',0,'1',1);
INSERT INTO "tickets" VALUES('south',1,'south','1','',10,'g2:1',1048583,'serve','b','b',0.0,'','[]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('south',2,'south','2','',10,'g2:0',7,'serve','b','b',0.0,'','[]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('south',3,'south','5','',18,'g2:0',7,'serve','b','b',0.0,'','[]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('south',4,'south','6','',18,'g2:0',7,'serve','b','b',0.0,'','[]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('south',5,'south','8','',18,'g2:1',1048583,'serve','b','b',0.0,'','[]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('south',6,'south','11','',25,'g2:0',7,'serve','b','b',0.0,'','[]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('south',7,'south','14','',34,'g2:1',1048579,'serve','a','a',0.0,'','[]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('south',8,'south','15','',34,'g2:1',1048583,'serve','b','b',0.0,'','[]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('south',9,'south','16','',34,'g2:0',3,'serve','a','a',0.0,'','[]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('south',10,'south','17','',34,'g2:0',7,'serve','b','b',0.0,'','[]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('south',11,'south','19','',43,'g2:0',7,'serve','b','b',0.0,'','[]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('south',12,'south','s0','',5,'g2:0',3,'recall','','(labels seen)',0.0,'','[]','1','1','',NULL,0,NULL,NULL);
INSERT INTO "tickets" VALUES('south',13,'south','s1','',6,'g2:1',1048583,'serve','b','b',0.0,'','[]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('south',14,'south','s2','',7,'g2:0',7,'serve','b','b',0.0,'','[]','1','1','',NULL,0,NULL,NULL);
INSERT INTO "tickets" VALUES('south',15,'south','s3','',8,'g2:1',1048579,'recall','','(labels seen)',0.0,'','[]','1','1','',NULL,0,'"red"',0);
INSERT INTO "tickets" VALUES('south',16,'south','s4','',9,'g2:0',7,'serve','b','b',0.0,'','[]','1','1','',NULL,0,NULL,NULL);
INSERT INTO "tickets" VALUES('south',17,'south','s5','',10,'g2:1',1048583,'serve','b','b',0.0,'','[]','1','1','',NULL,0,'true',1);
INSERT INTO "tickets" VALUES('south',18,'south','s6','',11,'g2:0',3,'recall','','(labels seen)',0.0,'','[]','1','1','',NULL,0,NULL,NULL);
INSERT INTO "tickets" VALUES('south',19,'south','s7','',12,'g2:1',1048583,'serve','b','b',0.0,'','[]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('south',20,'south','s8','',13,'g2:0',7,'serve','b','b',0.0,'','[]','1','1','',NULL,0,NULL,NULL);
