"""Types that all other packages of document_qa use: documents and questions. It imports none of them."""
